"""The run folder: whose checkpoints are whose, what kills leave behind, and who holds the lock."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.runs.folder import RunFolder, new_folder
from fedgwc.runs.loop import run
from tests.conftest import Listener, Small
from tests.runs.stopped import Stopped


def contents(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_checkpoint_of_another_run_is_put_aside(stopped: Stopped) -> None:
    mine, other = stopped("mine"), stopped("other", seed=1)
    shutil.copy(other / "state" / "00000004.ckpt", mine / "state" / "00000004.ckpt")
    watcher = Listener()
    assert run(None, mine, resume=True, progress=watcher).finished
    assert watcher.heard == ["left out a damaged checkpoint, 00000004.ckpt: the checkpoint belongs to another run"]
    assert (mine / "state" / "00000004.damaged").exists()


def test_a_checkpoint_under_another_name_is_put_aside(stopped: Stopped) -> None:
    folder = stopped()
    (folder / "state" / "00000004.ckpt").rename(folder / "state" / "00000005.ckpt")
    watcher = Listener()
    run(None, folder, resume=True, progress=watcher)
    assert "is of round 4, not of the round that its name says" in watcher.heard[0]


def test_with_no_sound_checkpoint_nothing_is_thrown_away(stopped: Stopped) -> None:
    """A run that cannot be read today (by an older version, say) must not start over by itself tomorrow."""
    folder = stopped()
    for path in (folder / "state").iterdir():
        path.write_bytes(b"fedgwc-state-99\n" + path.read_bytes())
    before = contents(folder)
    for _ in range(2):
        with pytest.raises(InputError, match=r"no usable checkpoint .* empty .*state to start from the beginning"):
            run(None, folder, resume=True)
    assert contents(folder) == before


def test_a_run_without_checkpoints_starts_again_where_nothing_else_is_lost(stopped: Stopped) -> None:
    """Emptying `state` is what is advised where checkpoints are damaged; a folder that is gone may just be elsewhere."""
    folder = stopped()
    shutil.rmtree(folder / "state")
    before = contents(folder)
    with pytest.raises(InputError, match=r"state is missing.*put it back, or make it to start from the beginning"):
        run(None, folder, resume=True)
    assert contents(folder) == before
    (folder / "state").mkdir()
    (folder / "splits").rmdir()  # as copies by way of git lack it
    assert run(None, folder, resume=True).finished
    assert RunFolder(folder).trace()["round"].tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("damage", ["gone", "emptied", "spoiled"])
def test_a_finished_run_is_never_started_again(damage: str, small: Small, tmp_path: Path) -> None:
    run(small(rounds=2), tmp_path)
    for path in (tmp_path / "state").iterdir():
        path.write_bytes(b"half") if damage == "spoiled" else path.unlink()
    if damage == "gone":
        (tmp_path / "state").rmdir()
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"checkpoint.*, or begin anew with another --out"):
        run(small(rounds=4), tmp_path, resume=True)
    assert contents(tmp_path) == before


def test_a_checkpoint_that_is_a_device_is_put_aside(stopped: Stopped) -> None:
    folder, watcher = stopped(), Listener()
    (folder / "state" / "00000005.ckpt").symlink_to("/dev/null")
    assert run(None, folder, resume=True, progress=watcher).finished
    assert "00000005.ckpt is a device" in watcher.heard[0]


def test_checkpoints_of_a_config_that_was_changed_say_so(stopped: Stopped) -> None:
    folder = stopped()
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    with pytest.raises(InputError, match=r"belongs to another run.*if config\.json was changed, put it back as it was"):
        run(None, folder, resume=True)


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl", "state", "trace", "splits", "models"])
def test_a_link_in_a_run_leads_nowhere(name: str, stopped: Stopped, tmp_path: Path) -> None:
    """A folder that came from elsewhere could else have a run write, rename and delete what it likes."""
    folder, victim = stopped(), tmp_path / "victim"
    if (folder / name).is_dir():
        shutil.move(folder / name, victim)
        (victim / ".a.tmp").mkdir()
    else:
        (folder / name).unlink(missing_ok=True)
        victim.write_text("mine")
    (folder / name).symlink_to(victim)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=rf"{name} is no ordinary"):
        run(None, folder, resume=True)
    assert contents(tmp_path) == before
    assert victim.is_file() or (victim / ".a.tmp").is_dir()


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_a_pipe_in_a_run_is_not_waited_for(name: str, stopped: Stopped) -> None:
    folder = stopped()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match=rf"{name} is no ordinary file"):
        run(None, folder, resume=True)


def test_sweeping_up_follows_no_link(stopped: Stopped, tmp_path: Path) -> None:
    folder, victim = stopped(), tmp_path / "victim"
    victim.mkdir()
    (victim / "notes.txt").write_text("mine")
    for path in (folder / ".x.tmp", folder / "state" / ".x.tmp"):
        path.symlink_to(victim)
    assert run(None, folder, resume=True).finished
    assert not list(folder.rglob("*.tmp"))
    assert (victim / "notes.txt").read_text() == "mine"


def test_what_a_killed_creation_leaves_is_no_obstacle(small: Small, tmp_path: Path) -> None:
    for name in ("trace", "state"):
        (tmp_path / "r" / name).mkdir(parents=True)
    (tmp_path / "r" / "lock").touch()
    (tmp_path / "r" / ".config.json.77.tmp").write_text('{"exper')
    assert run(small(rounds=1), tmp_path / "r").finished
    assert not list((tmp_path / "r").rglob("*.tmp"))


def test_half_written_files_are_swept_up_and_missing_ones_made(stopped: Stopped) -> None:
    folder = stopped()
    (folder / "state" / ".00000005.ckpt.77.tmp").write_bytes(b"half")
    (folder / ".models.tmp").mkdir()
    (folder / "clients.npz").unlink()
    assert run(None, folder, resume=True).finished
    assert not list(folder.rglob("*.tmp"))
    assert RunFolder(folder).trace_with_clients()["counts"].shape == (20, 10)


def test_files_of_others_in_the_folder_are_left_alone(stopped: Stopped) -> None:
    folder = stopped()
    for name in ("trace/notes.npz", "splits/mine-1.npz", "state/notes.txt"):
        (folder / name).write_text("mine")
    assert run(None, folder, resume=True).finished
    assert len(RunFolder(folder).trace()["round"]) == 6
    assert (folder / "splits" / "mine-1.npz").exists()


def test_a_forked_process_does_not_hold_the_lock(tmp_path: Path) -> None:
    """A worker that outlives its killed parent must not keep the run from being resumed."""
    folder = RunFolder(tmp_path)
    folder.lock()
    read, write = os.pipe()
    worker = os.fork()
    if not worker:
        os.write(write, b"here")
        signal.pause()
    try:
        assert os.read(read, 4) == b"here"
        folder.close()
        again = RunFolder(tmp_path)
        again.lock()
        again.close()
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        os.close(read)
        os.close(write)


def test_a_line_that_is_no_evaluation_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\n[1, 2]\n')
    with pytest.raises(InputError, match="a line without a round"):
        RunFolder(tmp_path).metrics()
    (tmp_path / "metrics.jsonl").write_bytes(b'{"round": 1}\n{"round": 2, "acc\xff')
    assert RunFolder(tmp_path).metrics() == [{"round": 1}]  # cut off by a crash


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{x", "Expecting property name"),
        ("", "Expecting value"),
        ('{"round": 1e1}', "a line without a round"),
        (f'{{"round": 1{"0" * 9}0}}', "a line without a round"),
        (f'{{"round": 2, "accuracy": {"9" * 400}}}', "a number of more than 64 bits"),
        ("[" * 10**5, ""),
    ],
)
@pytest.mark.parametrize("name", ["metrics.jsonl", "verdicts.jsonl"])
def test_a_damaged_line_is_named_and_nothing_is_lost(name: str, line: str, message: str, tmp_path: Path) -> None:
    """Only a crash leaves a line without its end; what is in the middle was whole once."""
    for log in ("metrics.jsonl", "verdicts.jsonl"):
        (tmp_path / log).write_text('{"round": 1}\n{"round": 9}\n')
    (tmp_path / name).write_text(f'{{"round": 1}}\n{line}\n{{"round": 3}}\n')
    before = contents(tmp_path)
    with pytest.raises(InputError, match=rf"{name} cannot be read, line 2: .*{message}"):
        RunFolder(tmp_path)._go_back_to(2)
    assert contents(tmp_path) == before


def test_a_log_that_is_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/null")
    with pytest.raises(InputError, match=r"metrics\.jsonl is a device"):
        RunFolder(tmp_path).metrics()


def test_scores_that_are_infinite_by_definition_come_back_so(tmp_path: Path) -> None:
    RunFolder(tmp_path).log({"round": 1, "wadb": np.inf})
    assert RunFolder(tmp_path).metrics() == [{"round": 1, "wadb": np.inf}]


@pytest.mark.parametrize("what", ["a file", "a link to nowhere"])
def test_runs_that_is_no_folder_is_refused(what: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.write_text("mine") if what == "a file" else runs.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"runs is a file or a link to nowhere.*choose --out"):
        new_folder("digits", "fedavg", runs)
