"""The examples run as they stand and do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def lines_of(name: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_quickstart_finds_the_shifted_clients() -> None:
    lines = lines_of("quickstart.py")
    accuracy = {int(n): float(a) for n, a in re.findall(r"round (\d+): accuracy ([\d.]+)%", "\n".join(lines))}
    assert list(accuracy) == [50, 100, 150, 200, 250, 300]
    assert accuracy[300] > accuracy[50] + 10  # the split is between them
    found = [re.fullmatch(r"cluster \d+, born in round (\d+): (\d+) clients, (\d+) of them shifted", x) for x in lines[6:]]
    clusters = [tuple(map(int, m.groups())) for m in found if m]
    assert sum(size for _, size, _ in clusters) == 30
    assert sum(shifted for _, _, shifted in clusters) == 8
    assert sum(min(shifted, size - shifted) for _, size, shifted in clusters) <= 3  # misplaced
    assert all(born > 0 for born, _, _ in clusters)


def test_own_algorithm_trains() -> None:
    lines = lines_of("own_algorithm.py")
    accuracies = [float(m.group(1)) for m in re.finditer(r"trim \d: accuracy ([\d.]+)% after 100 rounds", "\n".join(lines))]
    assert len(accuracies) == 2
    assert min(accuracies) > 60


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_every_example_is_tested_here(path: Path) -> None:
    assert path.name in Path(__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize("app", sorted(EXAMPLES.glob("flower_*")), ids=lambda p: p.name)
def test_flower_apps_run_with_what_is_installed_on_the_server_that_was_started(app: Path) -> None:
    """A dependency would be sought on a package index, and `flwr run .` alone starts a simulation."""
    assert tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"] == []
    readme = (app / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"flwr run \. \S+", readme)
    assert commands
    assert set(commands) == {"flwr run . here"}
