"""`fedgwc tune`, and comparisons with what it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedgwc.runs.folder import RunFolder
from tests.cli.conftest import Command, refused

QUICK = [x for s in ("rounds=2", "data.groups=[{clients=6}]", "model.hidden=[4]", "local.steps=1") for x in ("--set", s)]


def lr_of(folder: Path) -> float:
    return float(RunFolder(folder).config()["experiment"]["local"]["lr"])


def test_what_is_tuned_is_what_is_compared_on_other_seeds(fedgwc: Command, tmp_path: Path) -> None:
    space = ["--space", "local.lr=0.3,0.4"]
    told = fedgwc(
        "tune", "digits", "-a", "fedavg", "--trials", "2", "--seeds", "1", *QUICK, *space, "-o", tmp_path / "t", "-j", "1"
    )
    assert told.code == 0
    assert "fedavg" in told.out
    assert "2/2 fedavg trial 1: validation accuracy" in told.err
    assert '"command": "fedgwc tune digits' in (tmp_path / "t" / "provenance.json").read_text()
    tuned = ["--tuned", tmp_path / "t", "-j", "1"]
    told = fedgwc("compare", "digits", "-a", "fedavg,ifca", *QUICK, *tuned, "-o", tmp_path / "c")
    assert "has no settings of ifca: as the recipe has them" in told.err
    assert lr_of(tmp_path / "c" / "fedavg-seed0") in (0.3, 0.4)
    assert lr_of(tmp_path / "c" / "ifca-seed0") == 0.1


def test_a_comparison_tunes_first(fedgwc: Command, tmp_path: Path) -> None:
    for _ in ("anew", "again"):  # which does nothing twice
        told = fedgwc("compare", "digits", "-a", "fedavg", "--tune", "1", *QUICK, "-o", tmp_path, "-j", "1")
        assert told.code == 0
    assert "trial 0" not in told.err
    assert lr_of(tmp_path / "fedavg-seed0") == 0.1  # of one trial: the defaults
    assert (tmp_path / "tuning" / "fedavg" / "trial-000" / "seed10001").is_dir()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tune", "1", "--set", "seed=9999", "--seeds", "2"], "seeds 10,000 to 10,001 are for tuning"),
        (["--tune", "1", "--sweep", "ifca.k=2,3"], "take one of them"),
        (["--tuned", "nowhere"], "holds no finished tuning"),
    ],
)
def test_slips_of_comparisons_that_tune(fedgwc: Command, more: list[str], message: str) -> None:
    refused(fedgwc("compare", "digits", "-a", "ifca", *QUICK, *more), message)
