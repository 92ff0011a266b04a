"""Kept results: small, complete, and of no machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedgwc.cli.results import keep_command
from fedgwc.core.errors import InputError
from fedgwc.report.load import load as load_report
from fedgwc.reproduce.keep import LIMIT, keep, size_of, thinned, without_paths
from fedgwc.reproduce.outcome import read, read_all
from fedgwc.reproduce.provenance import provenance
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run
from tests.conftest import Small

ROOT = Path(__file__).parents[2]


def test_evaluations_are_thinned_from_the_end() -> None:
    rows = [{"round": i} for i in range(1, 8)]
    assert [r["round"] for r in thinned(rows, 3)] == [1, 4, 7]
    assert thinned(rows, 7) == rows


def test_machine_paths_become_names() -> None:
    given = {"root": "/mnt/data/x", "n": 3, "notes": ["clients of /a/b/part.json.gz; see https://host/page, and/or runs/mine"]}
    assert without_paths(given) == {
        "root": "x",
        "n": 3,
        "notes": ["clients of part.json.gz; see https://host/page, and/or runs/mine"],
    }
    assert without_paths("fedgwc run r --set data.root=/mnt/data --out ~/runs/a") == "fedgwc run r --set data.root=data --out a"


def test_a_kept_run_is_small_and_says_where_it_comes_from(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(small("auto", rounds=4, algorithm={"visits": 1, "min_size": 1}), tmp_path / "mine").folder
    keep_command([made], tmp_path / "results", {"command": "fedgwc run x", "hardware": "a box"})
    assert "Kept: " in capsys.readouterr().out
    kept = read(tmp_path / "results" / "small" / "mine")
    assert kept.last == read(made).last
    assert kept.experiment == read(made).experiment
    assert kept.provenance["command"] == "fedgwc run x"
    assert kept.provenance["commit"] == "unknown"
    assert kept.provenance["seconds"] == kept.last["seconds"]
    assert {p.name for p in kept.path.iterdir()}.isdisjoint({"models", "state", "trace"})
    assert load_report(kept.path).matrices  # `fedgwc report` works on it
    with pytest.raises(InputError, match="holds this run already"):
        keep(made, tmp_path / "results")


def test_what_is_no_result_is_not_kept(small: Small, tmp_path: Path) -> None:
    made = run(small(rounds=1), tmp_path / "a").folder
    (made / "per_client.npz").unlink()
    with pytest.raises(InputError, match="not finished"):
        keep(made, tmp_path / "results")
    config = RunFolder(made).config()
    config["experiment"]["recipe"] = "cifar100-smoke"
    (made / "config.json").write_text(json.dumps(config))
    (made / "per_client.npz").touch()
    with pytest.raises(InputError, match="made data"):
        keep(made, tmp_path / "results")
    for name in ("../../x", "..-short"):  # the scale is not part of the name
        config["experiment"]["recipe"] = name
        (made / "config.json").write_text(json.dumps(config))
        with pytest.raises(InputError, match="cannot be the name of a folder"):
            keep(made, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_provenance_names_command_commit_hardware_versions_and_date() -> None:
    known = provenance("fedgwc reproduce table-k")
    assert list(known) == ["command", "commit", "hardware", "versions", "date"]
    assert "CPU cores" in known["hardware"]
    assert known["versions"]["fedgwc"]


def test_committed_results_are_small_complete_and_name_no_machine() -> None:
    outcomes = read_all(ROOT / "results")
    assert outcomes
    for o in outcomes:
        assert size_of(o.path) <= LIMIT
        assert {"command", "commit", "hardware", "versions", "date", "seconds"} <= o.provenance.keys()
        assert without_paths(o.config) == o.config
        assert without_paths(o.provenance) == o.provenance
