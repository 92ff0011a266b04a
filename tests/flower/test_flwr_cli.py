"""`fedgwc deploy run` and `register` over a pretended `flwr`, and the nodes' start scripts over a pretended SuperNode."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedgwc.core.errors import InputError
from fedgwc.flower.deploy import flwr_cli

from .deployed import deploy
from .real import until

pytestmark = pytest.mark.usefixtures("nobody_listens")
STARTED = json.dumps({"success": True, "run-id": "77"})


def failed(message: str) -> str:
    return json.dumps({"success": False, "error-message": message})


def runs(*statuses: str, **details: str) -> list[str]:
    return [json.dumps({"success": True, "runs": [{"status": s, **details}]}) for s in statuses]


class FakeFlwr:
    """A `flwr` that always exits with 0 and prints the answers it was given, the last one again and again."""

    def __init__(self, place: Path) -> None:
        self.answers = place / "answers.json"
        self.program = place / "flwr"
        self.program.write_text(
            f"""#!{sys.executable}
import json, sys, pathlib
path = pathlib.Path({str(self.answers)!r})
answers = json.loads(path.read_text())
first, *rest = answers[sys.argv[1]]
print(first)
path.write_text(json.dumps(answers | {{sys.argv[1]: rest or [first]}}))
"""
        )
        self.program.chmod(0o755)

    def answer(self, **answers: list[str]) -> None:
        self.answers.write_text(json.dumps(answers))


@pytest.fixture
def flwr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeFlwr:
    made = FakeFlwr(tmp_path)
    monkeypatch.setattr("shutil.which", lambda *_, **__: str(made.program))
    monkeypatch.setattr("fedgwc.flower.deploy.flwr_cli.time.sleep", lambda _: None)
    return made


@pytest.mark.parametrize(
    ("answers", "code", "printed"),
    [
        ({"run": ["building ...\n" + STARTED], "ls": runs("pending", "finished:completed")}, 0, "run 77: finished:completed"),
        ({"run": [STARTED], "ls": runs("pending", "finished:failed")}, 1, "run 77 was not completed"),
        ({"run": [STARTED], "ls": runs("running", "finished:stopped")}, 1, "run 77 was not completed"),
        ({"run": [STARTED], "ls": runs("finished")}, 1, "run 77 was not completed"),
        (
            {"run": [STARTED], "ls": runs("finished:failed", **{"status-details": "another process is writing"})},
            1,
            "run 77 was not completed: another process is writing",
        ),
        ({"run": [failed("no SuperLink there")]}, 2, "flwr run failed: no SuperLink there"),
        (
            {"run": [STARTED], "ls": [*runs("running"), failed("away"), failed("away"), *runs("running", flwr_cli.DONE)]},
            0,
            "cannot be asked, trying again (flwr ls failed: away)",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_exit_codes_tell_the_truth(
    answers: dict[str, list[str]], code: int, printed: str, folder: Path, flwr: FakeFlwr, capsys: pytest.CaptureFixture[str]
) -> None:
    flwr.answer(**answers)
    assert deploy("run", folder) == code
    assert "".join(capsys.readouterr()).count(printed) == 1


def test_a_run_that_the_server_does_not_know_is_not_waited_for_without_end(folder: Path, flwr: FakeFlwr) -> None:
    flwr.answer(ls=[json.dumps({"success": True, "runs": []})])
    with pytest.raises(InputError, match=r"run 77 may go on.*does not know run 77"):
        flwr_cli.wait(folder, 77, print, patience=0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_stops_watching_is_told_that_the_run_goes_on(
    number: int,
    code: int,
    folder: Path,
    flwr: FakeFlwr,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flwr.answer(run=[STARTED], ls=runs("running"))
    monkeypatch.setattr("fedgwc.flower.deploy.flwr_cli.time.sleep", lambda _: signal.raise_signal(number))
    assert deploy("run", folder) == code
    err = capsys.readouterr().err
    assert "run 77 goes on at the server" in err
    for command in ("log", "stop"):
        assert f"FLWR_HOME={folder / 'flwr'} flwr {command} 77 tls" in err


def test_the_nodes_numbers_are_kept(folder: Path, flwr: FakeFlwr) -> None:
    flwr.answer(
        supernode=[*(json.dumps({"success": True, "node-id": n}) for n in ("11", "22", "33")), failed("key already in use")]
    )
    flwr_cli.register(folder)
    assert json.loads((folder / "nodes.json").read_text()) == {"node-1": "11", "node-2": "22", "node-3": "33"}
    (folder / "nodes" / "notes.txt").write_text("whom to call")
    assert flwr_cli.register(folder)[1] == "node-2: is registered already as node 22"
    (folder / "nodes.json").write_text('{"node-1": "1')
    with pytest.raises(InputError, match=r"nodes\.json is damaged .*; delete it"):
        flwr_cli.register(folder)


@pytest.mark.parametrize("command", ["run", "register", "check", "renew"])
@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_of_something_else_is_refused_and_left_alone(
    command: str, exists: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "other"
    if exists:
        place.mkdir()
    assert deploy(command, place) == 2
    assert "was not written by fedgwc deploy init" in capsys.readouterr().err
    assert place.exists() == exists
    assert not exists or not list(place.iterdir())


# The nodes' start scripts


def pretended_node(place: Path, body: str) -> dict[str, str]:
    """Return an environment whose SuperNode does what `body` says, and whose pauses take no time."""
    programs = place / "programs"
    programs.mkdir()
    for name, text in (("flower-supernode", body), ("sleep", "")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def test_a_node_that_the_server_refuses_for_a_while_tries_again(folder: Path, tmp_path: Path) -> None:
    """After a crash Flower lets a node in again only when it has missed its heartbeats; until then it ends with code 305."""
    env = pretended_node(tmp_path, f'echo "$@" >> {tmp_path}/tried\n[ "$(wc -l < {tmp_path}/tried)" -ge 3 ] || exit 49')
    script = folder / "nodes" / "node-1" / "start.sh"
    done = subprocess.run([script], env=env, capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr.count("ended with code 49 and is started again in 15 seconds") == 2
    assert len(set((tmp_path / "tried").read_text().splitlines())) == 1  # the same arguments each time


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ending_a_nodes_script_ends_the_node(number: int, folder: Path, tmp_path: Path) -> None:
    body = f"trap 'touch {tmp_path}/ended; exit 0' TERM\ntouch {tmp_path}/started\nwhile :; do /bin/sleep 0.1; done"
    # What a shell starts with & ignores SIGINT, and so would all of its offspring.
    heeds: Any = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    script, env = folder / "nodes" / "node-1" / "start.sh", pretended_node(tmp_path, body)
    node = subprocess.Popen([script], env=env, start_new_session=True, preexec_fn=heeds)
    try:
        until("it runs", (tmp_path / "started").exists, 20)
        node.send_signal(number)
        assert node.wait(20) == 143
        assert (tmp_path / "ended").exists()
    finally:
        with suppress(ProcessLookupError):  # all of it has ended, as it should
            os.killpg(node.pid, signal.SIGKILL)
        node.wait()
