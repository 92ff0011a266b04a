"""Algorithms, models and data sets of one's own, from the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import fedgwc
from fedgwc.cli.app import main
from fedgwc.core.errors import InputError
from fedgwc.core.settings import check_settable
from fedgwc.data import DATASETS
from fedgwc.models import MODELS
from fedgwc.runs.experiment import TABLES, recipes
from fedgwc.runs.plugins import NAME, PREFIX, TAKEN, VARIABLE, plugins_loaded, use

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm.py"
PARTS = """
import numpy as np
from torch import nn

import fedgwc
from fedgwc.cli.app import main
from fedgwc.data import from_arrays


def tiny(shape, n_classes, *, width: int = 4):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, n_classes))


def coins(*, seed: int, clients: int = 6):
    x = np.random.default_rng(seed).normal(size=(clients * 20, 2)).astype("float32")
    return from_arrays(x, x[:, 0] > 0, np.repeat(np.arange(clients), 20))


fedgwc.models.MODELS["tiny"] = tiny
fedgwc.data.DATASETS["coins"] = coins
"""
MODEL = """
from functools import partial
from fedgwc.models import MODELS
def net(shape, n_classes, *, width: int = 4): ...
"""
OWN = ["--set", "data.name=coins", "--set", "model.name=tiny", "--set", "rounds=6"]


def command(*args: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    full = [sys.executable, "-m", "fedgwc", *args]
    return subprocess.run(full, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **variables})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(EXAMPLE, tmp_path / "mine.py")
    (tmp_path / "parts.py").write_text(PARTS)
    return tmp_path


@contextmanager
def as_before() -> Iterator[None]:
    """What is loaded meanwhile is forgotten. Libraries stay: many of them cannot be loaded twice."""
    with patch.dict(fedgwc.ALGORITHMS), patch.dict(MODELS), patch.dict(DATASETS), patch.dict(os.environ):
        path, modules = sys.path.copy(), set(sys.modules)
        yield
        sys.path[:] = path
        for name in [name for name in sys.modules if name.startswith(PREFIX) and name not in modules]:
            del sys.modules[name]


@pytest.fixture
def _as_before() -> Iterator[None]:
    with as_before():
        yield


@pytest.fixture
def told(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """`told("run", "--resume")`: exit code and stderr of a command in this process, which forgets what the command loaded.

    As in a process of its own, modules in the folder can be imported, so that loading one would be seen.
    """
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)

    def run(*args: str) -> tuple[int, str]:
        with as_before(), pytest.raises(SystemExit) as end:
            main(list(args))
        return int(end.value.code or 0), capsys.readouterr().err

    return run


Told = Callable[..., tuple[int, str]]


def test_every_command_knows_what_a_file_enters(folder: Path, told: Told) -> None:
    both = ["--use", "mine.py", "--use", "parts.py"]
    done = command(
        "compare", *both, *OWN, "-a", "fedavg,trimmed", "--sweep", "trimmed.trim=1,2", "-j", "2", "-o", "c", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert {p.name for p in folder.glob("c/*seed0")} == {"fedavg-seed0", "trimmed-trim=1-seed0", "trimmed-trim=2-seed0"}
    run = "c/trimmed-trim=1-seed0"
    assert told("replay", run)[0] == 0

    resume = ["run", "--resume", "-o", run, "--set", "rounds=8"]
    code, refused = told(*resume)
    assert code == 2
    assert f"{run} cannot go on: unknown algorithm 'trimmed'" in refused
    assert refused.endswith("one of your own is entered first, by a command's --use FILE.py\n")
    assert "unknown data set 'coins'" in told(*resume, "--use", "mine.py")[1]
    resumed = command(*resume, cwd=folder, **{VARIABLE: "mine.py:parts.py"})
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((folder / run / "metrics.jsonl").read_text().splitlines()[-1])["round"] == 8


def test_a_replay_needs_no_algorithm_but_its_losses(told: Told) -> None:
    run = ["run", "digits", "--use", "mine.py", "--set", "algorithm.name=trimmed", "--set", "rounds=3", "-o", "r"]
    assert told(*run)[0] == 0
    assert "trimmed" not in fedgwc.ALGORITHMS
    code, said = told("replay", "r", "--set", "algorithm.name=fedgwc")
    assert code == 0, said
    whose = "r: recorded by trimmed, clustered here as fedgwc would; the losses stay those of the models that were trained"
    assert whose in said


@pytest.mark.parametrize(("table", "what"), [("algorithm", "algorithm"), ("data", "data set"), ("model", "model")])
def test_a_folder_or_a_recipe_that_names_code_loads_none(table: str, what: str, folder: Path, told: Told) -> None:
    """They may come from anybody, and have nothing else wrong with them."""
    (folder / "evil.py").write_text("open('loaded', 'w')")
    assert told("run", "digits", "--set", "rounds=1", "-o", "r")[0] == 0
    np.savez(folder / "x.npz", x=np.zeros((3, 1, 8, 8), np.float32), y=np.zeros(3, int))
    config = json.loads((folder / "r" / "config.json").read_text())
    recipe = recipes()["digits"].read_text()
    refused = [["run", "evil.toml"], ["run", "--resume", "-o", "r", "--set", "rounds=2"]]
    if table != "algorithm":  # a comparison names its algorithms itself
        refused.append(["compare", "evil.toml", "-j", "1"])
    for name in ("evil", "evil.py"):
        named = re.sub(rf"(?m)^\[{table}\]\n(name = .*\n)?", f'[{table}]\nname = "{name}"\n', recipe)
        (folder / "evil.toml").write_text(named if f"[{table}]" in recipe else f'{recipe}\n[{table}]\nname = "{name}"\n')
        config["experiment"][table]["name"] = name
        (folder / "r" / "config.json").write_text(json.dumps(config))
        for args in refused:
            code, said = told(*args)
            assert code == 2
            assert f"unknown {what} '{name}'" in said
        for args in (["replay", "r"], ["report", "r"], ["assign", "r", "x.npz"]):
            told(*args)
    assert not (folder / "loaded").exists()


def test_a_process_loads_none_either(folder: Path) -> None:
    (folder / "evil.py").write_text("open('loaded', 'w')")
    done = command("run", "digits", "--set", "algorithm.name=evil", cwd=folder)
    assert done.returncode == 2
    assert "unknown algorithm 'evil'" in done.stderr
    assert not (folder / "loaded").exists()


@pytest.mark.usefixtures("_as_before")
def test_a_refused_file_ends_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the command itself, whether the variable was there before or not."""
    (tmp_path / "slip.py").write_text("x = = 1")
    for before in ({}, {VARIABLE: ""}):
        monkeypatch.delenv(VARIABLE, raising=False)
        for name, value in before.items():
            monkeypatch.setenv(name, value)
        for file, message in (("none.py", "there is no "), ("slip.py", "slip.py cannot be loaded: SyntaxError")):
            with pytest.raises(SystemExit) as end:
                main(["list", "--use", str(tmp_path / file)])
            assert end.value.code == 2
            said = capsys.readouterr().err
            assert message in said
            assert said.count("\n") == 1
            assert os.environ.get(VARIABLE) == before.get(VARIABLE)


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1 / 0", r"mine\.py cannot be loaded: ZeroDivisionError: division by zero \(mine\.py, line 1\)"),
        ("x = 1", "enters nothing in a table; it should say fedgwc.ALGORITHMS"),
        ("import fedgwc; fedgwc.ALGORITHMS['fedavg'] = fedgwc.ALGORITHMS['ifca']", "changes fedavg in ALGORITHMS"),
        (
            "import fedgwc; fedgwc.ALGORITHMS['x'] = type(fedgwc.ALGORITHMS['ifca'])",
            r"x in ALGORITHMS is a class; enter .*Method\(\)",
        ),
        ("import fedgwc; fedgwc.ALGORITHMS['x'] = fedgwc.Rng(0, 0)", "x in ALGORITHMS has no init, round, clustering"),
        ("import fedgwc.models; fedgwc.models.MODELS['x'] = 1", "x in MODELS must be a function or a class, got 1"),
        (f"{MODEL}\nMODELS['x'] = partial(net, width=3)", r"x in MODELS must be a function or a class, got functools\.partial"),
        (f"{MODEL}\nMODELS['my/net'] = net", "enters 'my/net' in MODELS; a name is made of letters, digits, - and _"),
        (f"{MODEL}\nMODELS['local'] = net", "enters 'local' in MODELS; .* none of format, rounds, seed, recipe"),
        (f"{MODEL}\nMODELS['x'] = lambda shape: net(shape, 2)", "x in MODELS must take shape, n_classes; it lacks n_classes"),
        (f"{MODEL}\nMODELS['x'] = lambda shape, n_classes, w=1: net", "x in MODELS: annotate w with int, float, .* came without"),
        (
            f"{MODEL}\ndef x(shape, n_classes, *, w: list[int] = ()): ...\nMODELS['x'] = x",
            r"annotate w .* came as w: list\[int\]",
        ),
        (f"{MODEL}\ndef x(shape, n_classes, *, w: 'Nowhere' = 1): ...\nMODELS['x'] = x", "'Nowhere' is not defined"),
        (f"{MODEL}\ndef x(shape, n_classes, **more): ...\nMODELS['x'] = x", r"takes \*\*more, which would let slips pass"),
        ("from fedgwc.data import DATASETS\nDATASETS['x'] = lambda: None", "data set x must take seed; it lacks seed"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, code: str, message: str) -> None:
    """Whoever calls it twice, after a first refusal, hears the same."""
    (tmp_path / "mine.py").write_text(code)
    before = [dict(fedgwc.ALGORITHMS), dict(MODELS), dict(DATASETS)]
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            use([str(tmp_path / "mine.py")])
    assert before == [fedgwc.ALGORITHMS, MODELS, DATASETS]
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(("table", "given"), [(fedgwc.ALGORITHMS, ()), (MODELS, ("shape", "n_classes")), (DATASETS, ("seed",))])
def test_what_is_asked_of_ones_own_holds_for_ours(table: dict[str, Any], given: tuple[str, ...]) -> None:
    for name, entry in table.items():
        assert NAME.fullmatch(name)
        check_settable(entry, name, *given)
    assert set(TAKEN) >= {*TABLES, "rounds", "seed", "recipe", "about"}


@pytest.mark.usefixtures("_as_before")
def test_processes_learn_of_a_file_only_while_a_command_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import fedgwc\nfedgwc.ALGORITHMS['mine'] = fedgwc.ALGORITHMS['ifca']\n")
    for before in (None, str(EXAMPLE)):
        if before:
            os.environ[VARIABLE] = before
        with plugins_loaded([str(tmp_path / "mine.py")]):
            assert os.environ[VARIABLE] == os.pathsep.join(filter(None, [before, str(tmp_path / "mine.py")]))
        assert os.environ.get(VARIABLE) == before


@pytest.mark.usefixtures("_as_before")
def test_a_path_that_cannot_be_passed_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be passed on to other processes; rename it"):
        use([str(tmp_path / "a:b" / "mine.py")])


def test_an_interrupt_while_a_file_loads_is_one_line(folder: Path) -> None:
    (folder / "slow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = command("run", "--use", "slow.py", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


@pytest.mark.usefixtures("_as_before")
def test_files_are_loaded_once_and_take_no_librarys_place(tmp_path: Path) -> None:
    entry = "import fedgwc\nfedgwc.ALGORITHMS['mine'] = fedgwc.ALGORITHMS['ifca']\n"
    (tmp_path / "random.py").write_text(entry)
    for _ in range(2):
        assert use([str(tmp_path / "random.py")]) == [str(tmp_path / "random.py")]
    assert "mine" in fedgwc.ALGORITHMS
    assert sys.modules[PREFIX + "random"].__file__ == str(tmp_path / "random.py")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "random.py").write_text(entry)
    use([str(tmp_path / "other" / "random.py")])  # a copy
    (tmp_path / "other" / "random.py").write_text(f"{entry}# with other words\n")
    with pytest.raises(InputError, match="have the same name; rename one of them"):
        use([str(tmp_path / "other" / "random.py")])
    with pytest.raises(InputError, match=r"there is no .*nowhere\.py; give a Python file"):
        use([str(tmp_path / "nowhere.py")])
    with pytest.raises(InputError, match="--use nowhere cannot be loaded: ModuleNotFoundError"):
        use(["nowhere"])
