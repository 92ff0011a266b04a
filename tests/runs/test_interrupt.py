"""Ctrl-C and SIGTERM at any moment: one calm line, the right exit code, nothing lost and nobody left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fedgwc.core.errors import InputError
from fedgwc.runs.interrupt import PoliteInterrupt, exit_when_interrupted

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc, to see who is there")
LONG = ["digits", "--set", "data.newcomers=0", "--set", "rounds=100000", "--set", "evaluate.every=5"]
CODES = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
BOTH = pytest.mark.parametrize(("number", "code"), CODES)
ONE = pytest.mark.parametrize(("number", "code"), [CODES[0], pytest.param(*CODES[1], marks=pytest.mark.slow)])
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A command in a group of its own, as a terminal starts it."""
    started: list[subprocess.Popen[str]] = []

    def begin(*args: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [sys.executable, "-m", "fedgwc", *args]
        started.append(subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes))  # type: ignore[call-overload]
        return started[-1]

    yield begin
    for process in started:
        if group(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def group(number: int) -> dict[int, str]:
    """The living processes of a group, and how each was started."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, _, its = (path / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its) == number and state != "Z":
                found[int(path.name)] = (path / "cmdline").read_text()
        except OSError:
            continue  # it has just ended
    return found


def spawned(number: int) -> list[int]:
    return [pid for pid, command in group(number).items() if "spawn_main" in command]


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def has_loaded(process: subprocess.Popen[str], library: str) -> bool:
    return library in Path(f"/proc/{process.pid}/maps").read_text()


def calm_line(process: subprocess.Popen[str]) -> str:
    """What a command that was stopped says, apart from its progress."""
    _, said = process.communicate(timeout=120)
    until(lambda: not group(process.pid), 60)
    lines = [line for line in said.splitlines() if " on digits: round " not in line]
    assert len(lines) == 1, said
    return lines[0]


@BOTH
def test_while_the_command_loads(number: int, code: int, start: Start, tmp_path: Path) -> None:
    process = start("run", *LONG)
    until(lambda: has_loaded(process, "numpy"))  # torch, which takes seconds, comes next
    os.killpg(process.pid, number)
    assert calm_line(process).startswith("Interrupted before")
    assert process.returncode == code
    assert not list(tmp_path.iterdir())


@ONE
def test_while_the_processes_of_a_comparison_load(number: int, code: int, start: Start, tmp_path: Path) -> None:
    process = start("compare", *LONG, "--jobs", "2")
    until(lambda: len(spawned(process.pid)) == 2)
    os.killpg(process.pid, number)
    assert calm_line(process) == "Interrupted before a run had begun; nothing was written."
    assert process.returncode == code
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.slow
def test_a_comparison_whose_parent_is_killed_saves_and_ends(start: Start, tmp_path: Path) -> None:
    process = start("compare", *LONG, "--jobs", "2", "--out", "c")
    until(lambda: len(list(tmp_path.glob("c/*/metrics.jsonl"))) == 2)
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not group(process.pid))
    assert len({path.parent for path in tmp_path.glob("c/*/state/*.ckpt")}) == 2


def test_a_comparison_says_whose_process_was_killed_and_the_others_save(start: Start, tmp_path: Path) -> None:
    """The others go on; here they are asked to stop."""
    process = start("compare", *LONG, "--jobs", "2", "--out", "c")
    until(lambda: len(list(tmp_path.glob("c/*/metrics.jsonl"))) == 2)
    os.kill(spawned(process.pid)[0], signal.SIGKILL)
    until(lambda: len(list(tmp_path.glob("c/*/metrics.jsonl"))) == 3)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert "ended (signal 9); if memory ran out, try fewer runs at a time, --jobs 1" in said
    assert "Interrupted and saved" in said
    assert list(tmp_path.glob("c/*/state/*.ckpt"))


@ONE
def test_a_run_with_workers(number: int, code: int, start: Start, tmp_path: Path) -> None:
    """They are told of a group's end too, and the round still wants their answers: none counts as failed."""
    process = start("run", *LONG, "--set", "engine.how=workers", "--set", "engine.workers=2", "--out", "r")
    until(lambda: len(group(process.pid)) >= 3)
    os.killpg(process.pid, number)
    assert calm_line(process) == "Interrupted and saved. Resume with: fedgwc run --resume --out r"
    assert process.returncode == code
    assert list(tmp_path.glob("r/state/*.ckpt"))


def test_a_program_that_uses_the_package_ends_by_sigterm_when_it_has_saved() -> None:
    code = (
        "import signal; from fedgwc.runs.interrupt import PoliteInterrupt\n"
        "with PoliteInterrupt() as interrupt:\n"
        "    signal.raise_signal(signal.SIGTERM); signal.raise_signal(signal.SIGTERM)\n"
        "    print('saved', interrupt.asked, flush=True)\n"
        "print('never')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "saved True\n")


def test_a_command_says_what_its_interrupt_says(capsys: pytest.CaptureFixture[str]) -> None:
    for text, line in (("", "Interrupted."), ("Interrupted and saved.", "Interrupted and saved.")):

        @exit_when_interrupted
        def command(said: str = text) -> None:
            raise KeyboardInterrupt(*filter(None, [said]))

        with pytest.raises(SystemExit) as end:
            command()
        assert end.value.code == 130
        assert capsys.readouterr().err == f"{line}\n"


@pytest.mark.parametrize("raised", [False, True])
def test_an_interrupt_hides_no_fault(raised: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Most of all not that what was to be saved could not be. Errors that libraries make of an interrupt say nothing."""

    @exit_when_interrupted
    def command(error: Exception) -> None:
        with PoliteInterrupt():
            signal.raise_signal(signal.SIGINT)
            if raised:
                with suppress(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
        raise error

    for error in (InputError("the file is broken"), OSError(errno.ENOSPC, "No space left on device")):
        with pytest.raises(type(error)) as seen:
            command(error)
        assert seen.value is error
    with pytest.raises(SystemExit if raised else RuntimeError):
        command(RuntimeError("made by a library"))
    assert capsys.readouterr().err == ("Interrupted.\n" if raised else "")
