"""The command as a user meets it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

QUICK = ["--set", "rounds=3", "--set", "data.train_size=6"]


def fedgwc(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedgwc", *args], capture_output=True, text=True, cwd=cwd, check=False, timeout=120
    )


Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """`told("list")`: exit code, stdout and stderr of a command in this process, which needs not load everything anew."""
    from fedgwc.cli.app import main

    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(list(args))
        return int(end.value.code or 0), *capsys.readouterr()

    return run


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\ntry:\n    from fedgwc.cli.app import main; main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'scipy', 'sklearn', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip().endswith("[]")
    for command in ("run", "compare", "list"):
        assert command in out


def test_importing_the_package_does_not_import_the_extras() -> None:
    code = "import sys, fedgwc; fedgwc.ALGORITHMS; print([m for m in ('matplotlib', 'flwr', 'tensorboard') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_the_default_job_compares_fedavg_fedgwc_and_auto(tmp_path: Path) -> None:
    done = fedgwc("run", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^fedavg +1 ", done.stdout, re.M)
    assert re.search(r"^auto +1 ", done.stdout, re.M)
    for title in ("accuracy %", "balanced %", "weighted %"):
        assert title in done.stdout
    assert "runs/digits-fedavg-1, runs/digits-fedgwc-1, runs/digits-auto-1" in done.stdout
    assert "round 3/3" in done.stderr  # no terminal: plain lines


def test_list_names_everything(told: Told) -> None:
    """Every algorithm on a line of its own."""
    from fedgwc.algorithms import ABOUT, ALGORITHMS

    assert list(ABOUT) == list(ALGORITHMS)
    assert len(set(ABOUT.values())) == len(ABOUT)
    code, out, _ = told("list")
    assert code == 0
    for name in ("digits", "fedavg", "fedgwc-release", "mlp"):
        assert name in out
    for name, about in ABOUT.items():
        assert re.search(rf"^  {name} +{re.escape(about)}$", out, re.M)


def test_version(told: Told) -> None:
    assert re.fullmatch(r"fedgwc \d+\.\d+\.\d+\n", told("--version")[1])


def test_every_argument_has_a_description(told: Told) -> None:
    from fedgwc.cli.app import app
    from fedgwc.cli.help import described, every_command

    arguments = [(name, p) for name, c in every_command(described(app)) for p in c.params if p.param_type_name == "argument"]
    assert len(arguments) > 10
    assert [(name, p.name) for name, p in arguments if not p.help] == []
    assert "A recipe's name" in told("run", "--help")[1]
    assert "list the names" in told("reproduce", "--help")[1]
    assert "best on validation data" in " ".join(told("compare", "--help")[1].split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "nonsense"], "no recipe 'nonsense'"),
        (["run", "--set", "algorithm.beta"], "key=value"),
        (["run", "--set", "rounds=none"], "rounds must be a whole number"),
        (["run", "digits", "--set", "algorithm.name=fedgcw"], "did you mean fedgwc"),
        (["run", "--resume"], "--resume needs --out"),
        (["run", "--resume", "--out", "nowhere"], "nowhere holds no run"),
        (["compare", "--algorithms", "fedavg,foo"], "unknown algorithm 'foo'"),
        (["compare", "--seeds", "0"], "--seeds must be at least 1"),
        (["run", "--out", "occupied", "digits"], "occupied is not an empty folder"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_a_mistake_is_one_sentence_and_exit_code_2(args: list[str], message: str, told: Told, tmp_path: Path) -> None:
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "file").write_text("mine")
    code, _, said = told(*args)
    assert code == 2
    assert message in said
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "occupied"]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory\nat line 1")])
def test_memory_that_runs_out_is_one_sentence(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedgwc.cli.app import main

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("fedgwc.cli.run.run_command", fail)
    with pytest.raises(SystemExit, match="2"):
        main(["run"])
    assert re.fullmatch(r"fedgwc: memory ran out \(.*\); ask for less at once, .*\n", capsys.readouterr().err)
    error = RuntimeError("something else")
    with pytest.raises(RuntimeError, match="something else"):
        main(["run"])


def test_a_mistake_ends_the_process_with_nothing_else_said(tmp_path: Path) -> None:
    done = fedgwc("run", "--resume", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"fedgwc: .*--resume needs --out.*\n", done.stderr)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_on_a_comparison_says_where_it_goes_on(tmp_path: Path) -> None:
    """Two runs at a time; a terminal sends Ctrl-C to all processes."""
    command = [sys.executable, "-m", "fedgwc", "compare", "digits", "--set", "rounds=100000", "-j", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 100
    while len(list(tmp_path.glob("runs/*/*/metrics.jsonl"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted and saved. The same command with --out runs/digits-compare-1 goes on from here." in stderr
    assert len({checkpoint.parent for checkpoint in tmp_path.glob("runs/*/*/state/*.ckpt")}) == 2


def test_compare_writes_one_table_and_does_nothing_twice(told: Told, tmp_path: Path) -> None:
    args = ["compare", "--algorithms", "fedavg,fedavgm", "--seeds", "2", *QUICK, "--out", "c", "-j", "1"]
    code, out, said = told(*args)
    assert code == 0, said
    assert "±" in out
    assert (tmp_path / "c" / "comparison.md").read_text().startswith("## Differences\n\n| method | accuracy % |")
    assert (tmp_path / "c" / "comparison.csv").read_text().count("\n") == 3
    before = (tmp_path / "c" / "fedavg-seed0" / "metrics.jsonl").read_bytes()
    assert told(*args)[:2] == (0, out)
    assert (tmp_path / "c" / "fedavg-seed0" / "metrics.jsonl").read_bytes() == before
