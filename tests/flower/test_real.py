"""The test that counts: a SuperLink and three SuperNodes with TLS and authentication, and everything that may go wrong."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from fedgwc.cli.app import main
from fedgwc.flower.deploy import flwr_cli, secrets
from fedgwc.flower.deploy.renew import renew
from fedgwc.models import MODELS
from fedgwc.runs.folder import RunFolder

from . import blobs
from .real import Processes, answers, free_port, named, offspring, processes, toml, until

ROUNDS = 7
TWO = ("--nodes", "2")  # every exchange starts a process per node, which is what takes long here; three are in the first test
SETTINGS = {"deadline": 40.0, "wait": 120.0, "pause": 1.0, "min-clients": 12}


OWN = """
import fedgwc
from fedgwc.models import mlp

def own_net(shape, n_classes, *, hidden: int):
    return mlp(shape, n_classes, hidden=(hidden,))

fedgwc.models.MODELS["own-net"] = own_net
"""


def deploy(where: Path, folder: Path, rounds: int = ROUNDS, *flags: str, **tables: Any) -> int:
    """Nodes that share twelve clients, written by the command that an operator uses."""
    port = free_port()
    blobs.write(where / "blobs.npz")
    recipe = where / "recipe.toml"
    recipe.write_text(toml({"seed": 1, **blobs.tables(where / "blobs.npz", rounds), **tables}))
    command = ["deploy", "init", str(folder), "--recipe", str(recipe), "--port", str(port), "--bind", "127.0.0.1", *flags]
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 0
    for script in folder.glob("nodes/*/start.sh"):
        script.write_text(re.sub(r"--port \d+", f"--port {free_port()}", script.read_text()))
    app = folder / "app" / "pyproject.toml"
    text = app.read_text()
    for key, value in SETTINGS.items():
        text = re.sub(rf"(?m)^{key} = \S+", f"{key} = {value}", text)
    app.write_text(text)
    return port


def stranger(folder: Path) -> Path:
    """A node with a key of its own making, which nobody registered."""
    home = folder.parent / "stranger"
    home.mkdir()
    secrets.make_node(home)
    for name in ("ca.crt", "node-config"):
        shutil.copy(folder / "nodes" / "node-1" / name, home / name)
    script = (folder / "nodes" / "node-1" / "start.sh").read_text()
    (home / "start.sh").write_text(re.sub(r"--port \d+", f"--port {free_port()}", script))
    (home / "start.sh").chmod(0o755)
    return home


@pytest.mark.slow
def test_a_real_federation(tmp_path: Path) -> None:
    folder = tmp_path / "federation"
    (tmp_path / "mine.py").write_text(OWN)  # which goes to all nodes with the app
    with patch.dict(MODELS):
        port = deploy(tmp_path, folder, ROUNDS, "--use", str(tmp_path / "mine.py"), model={"name": "own-net", "hidden": 16})
    (tmp_path / "mine.py").unlink()

    def done() -> list[dict[str, Any]]:
        return RunFolder(folder / "run").metrics()

    with processes(tmp_path / "logs") as here:
        here.start("superlink", folder / "superlink" / "start.sh")
        until("the SuperLink answers", lambda: answers(port, folder / "ca" / "ca.crt"), 60)
        assert all("registered" in line for line in flwr_cli.register(folder))
        here.start("stranger", stranger(folder) / "start.sh")
        for i in (1, 2, 3):
            here.start(f"node-{i}", folder / "nodes" / f"node-{i}" / "start.sh")

        first = flwr_cli.start(folder)
        until("the root has split", lambda: [r for r in done() if r["clusters"] == 2], 200)
        assert len(done()) <= 12
        for pid in named(offspring(here.running["superlink"].pid), "flwr-serverapp"):
            os.kill(pid, signal.SIGKILL)
        until("it is dead", lambda: not serverapps(here), 20)
        written = len(done())
        before = done()[: int(max((folder / "run" / "state").glob("*.ckpt")).stem)]  # a row is written before its checkpoint

        second = flwr_cli.start(folder)
        until("it goes on", lambda: len(done()) > written, 120)
        assert done()[: len(before)] == before  # what was done is not done again
        here.kill("node-3")
        assert flwr_cli.wait(folder, second, print).done

        rows = done()
        assert [r["round"] for r in rows] == list(range(1, ROUNDS + 1))
        assert rows[0]["answered"] == 12
        assert rows[-1]["answered"] == 8  # the other eight went on
        assert rows[-1]["accuracy"] > 0.95
        labels = np.loadtxt(folder / "run" / "labels.csv", delimiter=",", skiprows=1, usecols=1)
        np.testing.assert_array_equal(labels, blobs.TRUTH + 1)  # the two sides of cluster 0

        assert "SuperNode ID" in here.log("node-1")
        assert "SuperNode ID" not in here.log("stranger")  # refused: all that differs is its key
        assert "Connection attempt failed" in here.log("stranger")
        assert len(flwr_cli.flwr(folder, "supernode", "list", "tls")["nodes"]) == 3
        assert not flwr_cli.status(folder, first).done  # an operator would have got exit code 1
        secret = (folder / "superlink" / "server.key").read_text().splitlines()[1]
        assert not any(secret in here.log(name.name) for name in (tmp_path / "logs").iterdir())


def serverapps(here: Processes) -> list[int]:
    return named(offspring(here.running["superlink"].pid), "flwr-serverapp")


@pytest.mark.slow
def test_a_superlink_killed_in_the_middle(tmp_path: Path) -> None:
    """Everything on the server dies at once; its database still knows the nodes, and they find it again by themselves.

    What was saved stays. A round that was told of and not yet saved is made again, and takes another time. The server comes
    back with a new certificate, which asks nothing of the nodes.
    """
    folder = tmp_path / "federation"
    port = deploy(tmp_path, folder, 3, *TWO)

    def done() -> list[dict[str, Any]]:
        return RunFolder(folder / "run").metrics()

    def saved() -> list[Path]:
        return sorted((folder / "run" / "state").glob("*.ckpt"))

    with processes(tmp_path / "logs") as here:
        here.start("superlink", folder / "superlink" / "start.sh")
        until("the SuperLink answers", lambda: answers(port, folder / "ca" / "ca.crt"), 60)
        flwr_cli.register(folder)
        for i in (1, 2):
            here.start(f"node-{i}", folder / "nodes" / f"node-{i}" / "start.sh")
        flwr_cli.start(folder)
        until("a round is saved", saved, 150)
        here.kill("superlink")
        before = done()[: int(saved()[-1].stem)]
        assert "Nodes: nothing to do" in renew(folder)[-1]
        here.start("superlink", folder / "superlink" / "start.sh")
        until("the SuperLink answers", lambda: answers(port, folder / "ca" / "ca.crt"), 60)
        assert flwr_cli.wait(folder, flwr_cli.start(folder), print).done
        assert done()[: len(before)] == before
        assert [r["round"] for r in done()] == [1, 2, 3]


@pytest.mark.slow
def test_private_losses_between_real_processes(tmp_path: Path) -> None:
    """Every exchange starts a new process at each node: what a client keeps must survive in the SuperNode."""
    folder = tmp_path / "federation"
    port = deploy(tmp_path, folder, 5, "--private-losses", *TWO)
    with processes(tmp_path / "logs") as here:
        here.start("superlink", folder / "superlink" / "start.sh")
        until("the SuperLink answers", lambda: answers(port, folder / "ca" / "ca.crt"), 60)
        flwr_cli.register(folder)
        for i in (1, 2):
            here.start(f"node-{i}", folder / "nodes" / f"node-{i}" / "start.sh")
        assert flwr_cli.wait(folder, flwr_cli.start(folder), print).done
    run = RunFolder(folder / "run")
    rows = run.metrics()
    assert [r["round"] for r in rows] == [1, 2, 3, 4, 5]
    print([(r["seconds"], r["bytes_down"], r["bytes_up"]) for r in rows])
    assert rows[-1]["clusters"] == 2
    assert not any("loss" in r for r in rows)
    labels = np.loadtxt(run.path / "labels.csv", delimiter=",", skiprows=1, usecols=1)
    np.testing.assert_array_equal(labels, blobs.TRUTH + 1)
    trace = run.trace()
    assert trace["L"].shape[2] == 0
    assert np.isfinite(trace["rewards"]).all()
    assert np.isfinite(trace["readings"]).all()
