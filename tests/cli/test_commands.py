"""replay, score, assign and data as a user meets them: what they print, and one sentence for a mistake."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.torch
import torch

from fedgwc.cli.app import main
from fedgwc.cli.why import why, why_of
from fedgwc.data import Group, digits
from fedgwc.data.sources.catalogue import SOURCES
from fedgwc.runs.experiment import experiment
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.loop import run


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Answer]
TABLES: dict[str, Any] = {
    "rounds": 40,
    "data": {"name": "digits", "train_size": 40, "test_size": 10, "groups": [{"clients": 20}, {"clients": 8, "relabel": 1}]},
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"steps": 4, "batch": 20, "lr": 0.2},
    "algorithm": {"name": "fedgwc", "rate": 1.0, "eps": 0.3, "beta": 4.0},
    "evaluate": {"every": 40},
}


@pytest.fixture
def fedgwc(capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*args: str | Path) -> Answer:
        with pytest.raises(SystemExit) as end:
            main([str(a) for a in args])
        return Answer(int(end.value.code or 0), *capsys.readouterr())

    return command


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that found 20 usual and 8 shifted clients, with everybody in every round."""
    return run(experiment(TABLES, "commands"), tmp_path_factory.mktemp("runs") / "r").folder


def refused(answer: Answer, message: str) -> None:
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.startswith("fedgwc: ")
    assert len(answer.err.strip().splitlines()) == 1


def test_calling_twice_does_not_say_things_twice(fedgwc: Command) -> None:
    log = logging.getLogger("fedgwc")
    before = list(log.handlers)
    assert fedgwc("list").code == 0
    assert log.handlers == before


# replay


def test_replay_repeats_what_the_run_did(fedgwc: Command, run_folder: Path) -> None:
    """Everybody is there, so the mse falls as 0.9^t: below 0.3 after 12 rounds."""
    answer = fedgwc("replay", run_folder, "--set", "algorithm.rate=1.0")
    assert answer.code == 0, answer.err
    assert re.search(r"^round 12: cluster 0 of 28 clients -> .*Davies-Bouldin n=2: 0\.\d+", answer.out, re.M)
    head, row = answer.out.splitlines()[-2:]
    assert head.split("  ")[0] == "clusters"
    assert "adj. Rand" in head
    assert "WADB" in head
    assert int(row.split()[0]) == len(list((run_folder / "models").iterdir()))


def test_replay_of_a_part_under_other_settings(fedgwc: Command, run_folder: Path) -> None:
    early = fedgwc("replay", run_folder, "--rounds", "9")
    assert early.code == 0
    assert early.out.startswith("no split")  # by this rule
    assert fedgwc("replay", run_folder, *AUTO, "--rounds", "9").out.startswith("no division yet: the first window")
    sweep = fedgwc("replay", run_folder, "--sweep", "algorithm.beta=4,8", "--sweep", "algorithm.eps=0.3,0.001")
    rows = [line.split() for line in sweep.out.splitlines()]
    assert rows[0][:2] == ["algorithm.beta", "algorithm.eps"]
    assert [r[:2] for r in rows[1:]] == [["4", "0.3"], ["4", "0.001"], ["8", "0.3"], ["8", "0.001"]]
    assert [r[2] for r in rows[1:] if r[1] == "0.001"] == ["1", "1"]  # never tried: one cluster
    assert all(int(r[2]) > 1 for r in rows[1:] if r[1] == "0.3")


AUTO = ["--set", "algorithm.name=auto", "--set", "algorithm.rate=1.0"]


def test_replay_says_why(fedgwc: Command, run_folder: Path) -> None:
    never = ["--set", "algorithm.contrast=1e9", "--set", "algorithm.drift=1e9"]
    answer = fedgwc("replay", run_folder, *AUTO, *never)
    assert re.match(r"no division by round \d0: .*in most rounds clients differ little .* at least 1e\+09 in 0 of ", answer.out)


def test_what_was_probably_meant(fedgwc: Command, run_folder: Path) -> None:
    """Settings of an algorithm that does not run, or of another data set; the folder of a run in place of a recipe."""
    whose = "ifca.k is a setting of ifca, and this runs auto; add --set algorithm.name=ifca"
    refused(fedgwc("run", "digits", "--set", "ifca.k=3"), whose)
    refused(fedgwc("run", "--set", "ifca.k=3"), "this runs fedavg and fedgwc and auto")
    refused(
        fedgwc("run", "digits", "--set", "data.path=own"),
        "data set digits has no setting 'path', arrays has: choose one by data.name",
    )
    for given in (run_folder, run_folder / "config.json"):
        refused(fedgwc("run", given), f"to go on with the run: fedgwc run --resume --out {run_folder}")
    refused(fedgwc("run", "digits", "--set", "auto.beta=1.0"), "auto has no setting 'beta'")


@pytest.mark.parametrize("n_clients", [1, 5])
def test_clients_too_few_to_be_divided_are_told_so(n_clients: int, fedgwc: Command, tmp_path: Path) -> None:
    """Not that more rounds would do it; and a report can be made of them."""
    few = f"{n_clients} clients are never divided, it takes at least 6 (with algorithm.min_size=3)"
    groups = f"data.groups=[{{clients={n_clients}}}]"
    answer = fedgwc("run", "digits", "--set", groups, "--set", "rounds=3", "--out", tmp_path / "few")
    assert f"auto: no division: {few}\n" in answer.out
    assert few in answer.err
    assert few in fedgwc("replay", tmp_path / "few").out
    assert fedgwc("report", tmp_path / "few", "--out", tmp_path / "few.html").code == 0
    assert f"No attempt: {few}." in (tmp_path / "few.html").read_text()


def test_a_run_says_why(fedgwc: Command, tmp_path: Path) -> None:
    settings = [*AUTO, "--set", "model.hidden=[8]"]
    answer = fedgwc("run", "digits", *settings, "--set", "rounds=2", "--out", tmp_path / "a")
    assert "\nauto: no division yet: the first window of rounds has not come to its end\n" in answer.out
    more = [*settings, "--set", "algorithm.contrast=1e9", "--set", "algorithm.drift=1e9"]
    answer = fedgwc("run", "digits", *more, "--set", "rounds=21", "--out", tmp_path / "b")
    assert re.search(r"^auto: no division by round 20: .*contrast", answer.out, re.M)
    again = fedgwc("run", "--resume", "--out", tmp_path / "b")
    assert "\nauto: no division by round 20" in again.out
    row = {"round": 3, "divides": False, "why": "\x1b[2Jwiped, " + 300 * "x"}  # reasons do not steer a terminal
    (tmp_path / "b" / "verdicts.jsonl").write_text(json.dumps(row) + "\n")
    assert why_of(RunFolder(tmp_path / "b")) == "no division by round 3: \N{REPLACEMENT CHARACTER}[2Jwiped, " + 300 * "x"
    (tmp_path / "b" / "verdicts.jsonl").write_text('{"round": 3}\n')
    assert "is not as it was written" in fedgwc("run", "--resume", "--out", tmp_path / "b").err
    answer = fedgwc("run", "digits", "--set", "algorithm.name=fedavg", "--set", "rounds=2", "--out", tmp_path / "c")
    assert "division" not in answer.out


def test_why_in_one_line() -> None:
    rows = [{"round": 293, "divides": False, "why": "a"}, {"round": 1588, "divides": True, "why": "b", "sizes": [85, 15]}]
    assert why(rows[:1]) == "no division by round 293: a"
    assert why(rows) == "divided at round 1,588 into 85 + 15 clients: b"
    assert why(rows + rows) == "divided at round 1,588 into 85 + 15 clients: b; 1 more division later"


def test_a_division_that_was_undone_is_none() -> None:
    division = {"round": 40, "cluster": 0, "divides": True, "reason": "groups", "why": "a", "sizes": [25, 25]}
    undone = {"round": 80, "cluster": 0, "divides": False, "reason": "rejoined", "why": "b"}
    again, within = division | {"round": 160, "sizes": [30, 20]}, division | {"round": 200, "cluster": 3, "sizes": [15, 15]}
    assert why([division, undone]) == "no division by round 80: b"
    assert why([division, undone, again]) == "divided at round 160 into 30 + 20 clients: a"
    assert why([division, within, undone | {"cluster": 3}]) == "divided at round 40 into 25 + 25 clients: a"


def test_replay_exports_what_it_can_read_again(fedgwc: Command, run_folder: Path, tmp_path: Path) -> None:
    first = fedgwc("replay", run_folder, "--export", tmp_path / "t.npz")
    assert f"wrote {tmp_path / 't.npz'}: 40 rounds of 28 clients" in first.out
    same = ["algorithm.name=fedgwc", "algorithm.rate=1.0", "algorithm.eps=0.3", "algorithm.beta=4.0"]
    again = fedgwc("replay", tmp_path / "t.npz", *(word for each in same for word in ("--set", each)))
    assert again.out == first.out.split("\n", 1)[1]
    before = (tmp_path / "t.npz").read_bytes()
    refused(fedgwc("replay", run_folder, "--export", tmp_path / "t.npz"), "exists already")
    refused(fedgwc("replay", run_folder, "--export", tmp_path / "t"), "end in .npz")
    assert (tmp_path / "t.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--set", "local.lr=0.1"], "a replay has algorithm settings only"),
        (["--set", "algorithm=3"], "a replay has algorithm settings only"),
        (["--set", "algorithm.name=fedavg"], "fedavg does not cluster by losses"),
        (["--set", "algorithm.betta=1"], "did you mean beta?"),
        (["--set", "algorithm.beta=0"], "beta must be positive and finite, got 0.3 and 0.0"),
        (["--set", "algorithm.gain=2"], "algorithm has no setting 'gain'"),
        (["--sweep", "algorithm.beta"], "a sweep is written key=value,value"),
        (["--sweep", "algorithm.score=affinity,rows"], "algorithm.score must be one of"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_replay_mistakes_in_settings(fedgwc: Command, run_folder: Path, args: list[str], message: str) -> None:
    refused(fedgwc("replay", run_folder, *args), message)


IDS, LOSSES = np.array([[0, 1, 2], [1, 2, 3]]), np.linspace(0, 1, 12).reshape(2, 3, 2)
GOOD = {"ids": IDS, "L": LOSSES}
BAD_TRACES: dict[str, tuple[dict[str, Any], str]] = {
    "no losses": ({"ids": IDS}, "has no L"),
    "shapes": ({"ids": IDS, "L": LOSSES[:, :2]}, "ids must be [T, n] and L [T, n, S]"),
    "types": ({"ids": IDS * 1.0, "L": LOSSES}, "ids must be client numbers"),
    "nobody": ({"ids": IDS * 0 - 1, "L": LOSSES}, "names no client"),
    "sizes": ({"ids": IDS, "L": LOSSES, "sizes": np.ones(2)}, "sizes must be one number of samples per client"),
    "text as sizes": ({**GOOD, "sizes": np.array(list("abcd"))}, "sizes must be one number of samples per client"),
    "unknown sizes": ({**GOOD, "sizes": np.array([1, np.nan, 1, 1])}, "sizes must be finite and >= 0"),
    "negative sizes": ({**GOOD, "sizes": np.array([1, -1, 1, 1])}, "sizes must be finite and >= 0, got -1 to 1"),
    "one truth": ({**GOOD, "truth": np.array(1)}, "truth must be the number of one group per client, [4], got ()"),
    "truth by pair": ({**GOOD, "truth": np.eye(4, dtype=int)}, "truth must be the number of one group"),
    "short truth": ({**GOOD, "truth": np.arange(3)}, "truth must be the number of one group per client, [4]"),
    "one count": ({**GOOD, "counts": np.array(1.0)}, "counts must be a row of class counts per client, [4, C]"),
    "text as counts": ({**GOOD, "counts": np.full((4, 2), "a")}, "counts must be a row of class counts"),
    "short freq": ({**GOOD, "freq": np.ones((3, 2))}, "freq must be a row of class frequencies per client, [4, C]"),
    "large ids": ({"ids": IDS + 10**8, "L": LOSSES}, "client numbers up to 10,000,000, got 100000003; number clients from 0"),
    "twice": ({"ids": IDS * 0, "L": LOSSES}, "a client can be in a cohort once"),
    "readings": ({"ids": IDS, "L": LOSSES, "readings": np.ones((2, 3))}, "readings must be [T, n, 4]"),
    "infinite": ({"ids": IDS, "L": LOSSES + np.inf}, "losses must be finite"),
}


@pytest.mark.parametrize("case", BAD_TRACES)
def test_replay_of_a_bad_trace(fedgwc: Command, tmp_path: Path, case: str) -> None:
    arrays, message = BAD_TRACES[case]
    np.savez(tmp_path / "bad.npz", **arrays)
    refused(fedgwc("replay", tmp_path / "bad.npz"), message)


def test_replay_of_what_is_no_trace(fedgwc: Command, run_folder: Path, tmp_path: Path) -> None:
    refused(fedgwc("replay", tmp_path / "nothing.npz"), "no trace at")
    refused(fedgwc("replay", tmp_path), "holds no run")
    (tmp_path / "junk.npz").write_bytes(b"PK and then nothing")
    refused(fedgwc("replay", tmp_path / "junk.npz"), "whole .npz file of plain arrays")
    np.savez(tmp_path / "whole.npz", ids=IDS, L=LOSSES)
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-200])
    refused(fedgwc("replay", tmp_path / "half.npz"), "whole .npz file of plain arrays")
    np.save(tmp_path / "plain.npy", LOSSES)
    refused(fedgwc("replay", tmp_path / "plain.npy"), "whole .npz file of plain arrays")
    shutil.copytree(run_folder, tmp_path / "run")
    next((tmp_path / "run" / "trace").iterdir()).write_bytes(b"half")
    refused(fedgwc("replay", tmp_path / "run"), "whole .npz file of plain arrays")


# score


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([*lines, ""]))
    return path


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    counts = write(tmp_path / "counts.csv", "client,a,b,c", "p,9,0,0", "q,0,9,0", "r,3,3,3", "s,3,4,2")
    return counts, write(tmp_path / "labels.csv", "client,cluster,group", "s,x,2", "r,x,2", "q,y,1", "p,y,1")


def test_score_prints_every_metric(fedgwc: Command, tables: tuple[Path, Path]) -> None:
    """One class each against evenly mixed: ranked frequencies tell them apart, and the clusters are the groups."""
    answer = fedgwc("score", *tables)
    assert answer.code == 0, answer.err
    assert answer.out.startswith("4 clients, 3 classes, 2 clusters of 2 2\n")
    value = dict(re.findall(r"^(.*?\)|Rand index|adjusted Rand index) +(-?[\d.]+)", answer.out, re.M))
    assert value["Rand index"] == value["adjusted Rand index"] == "1.0000"
    assert float(value["Wasserstein adjusted silhouette (WAS)"]) > 0.8
    assert float(value["Wasserstein adjusted Davies-Bouldin (WADB)"]) < 0.2


def test_score_of_a_run(fedgwc: Command, run_folder: Path) -> None:
    answer = fedgwc("score", run_folder / "counts.csv", run_folder / "labels.csv")
    assert answer.code == 0
    assert answer.out.startswith("28 clients, 10 classes, ")
    assert "adjusted Rand index" in answer.out


def test_score_of_one_cluster_says_why_there_is_no_number(fedgwc: Command, tables: tuple[Path, Path], tmp_path: Path) -> None:
    labels = write(tmp_path / "one.csv", "client,cluster", *(f"{c},0" for c in "pqrs"))
    answer = fedgwc("score", tables[0], labels)
    assert answer.code == 0
    assert "One cluster only" in answer.out
    assert "Rand" not in answer.out  # no true groups given


@pytest.mark.parametrize(
    ("counts", "labels", "message"),
    [
        (None, ["client,cluster", "p,0", "q,0", "r,1", "z,1"], "must name the same clients"),
        (None, ["client,cluster", "p,0", "p,0", "r,1", "s,1"], "names a client twice"),
        (None, ["client,cluster", "p,0,1", "q,0"], "lines of the same length"),
        (None, ["client,cluster,group,more", "p,0,0,0"], "must have the columns"),
        (None, [], "must have a header line"),
        (["client,a,b", "p,x,1", "q,1,1", "r,1,1", "s,1,1"], None, "class counts must be numbers"),
        (["client,a,b", "p,-1,1", "q,1,1", "r,1,1", "s,1,1"], None, "finite and >= 0"),
        (["client", "p", "q", "r", "s"], None, "at least two class columns"),
        (["client,a", "p,1", "q,1", "r,1", "s,1"], None, "all samples of a client: class counts are unknown"),
    ],
    ids=["other clients", "twice", "ragged", "columns", "empty", "words", "negative", "no class", "one class"],
)
def test_score_mistakes(
    fedgwc: Command, tables: tuple[Path, Path], tmp_path: Path, counts: list[str] | None, labels: list[str] | None, message: str
) -> None:
    first = tables[0] if counts is None else write(tmp_path / "c.csv", *counts)
    second = tables[1] if labels is None else write(tmp_path / "l.csv", *labels)
    refused(fedgwc("score", first, second), message)


def test_score_of_files_that_are_not_there(fedgwc: Command, tables: tuple[Path, Path], tmp_path: Path) -> None:
    refused(fedgwc("score", tmp_path / "none.csv", tables[1]), "cannot be read as csv")
    refused(fedgwc("score", tables[0], tmp_path), "cannot be read as csv")
    refused(fedgwc("score", "/dev/null", tables[1]), "/dev/null is a device")  # as /dev/zero is, which has no end


# assign


def client(path: Path, relabel: int) -> Path:
    """The data of somebody who was not in the federation."""
    federation = digits(seed=9, groups=(Group(1), Group(1, relabel=1)), train_size=60, test_size=5)
    rows = federation.train[1 if relabel else 0]
    np.savez(path, x=federation.x[rows].numpy(), y=federation.y[rows].numpy())
    return path


@pytest.mark.parametrize("relabel", [0, 1], ids=["usual", "shifted"])
def test_assign_gives_a_new_client_the_model_of_its_group(
    fedgwc: Command, run_folder: Path, tmp_path: Path, relabel: int
) -> None:
    answer = fedgwc("assign", run_folder, client(tmp_path / "new.npz", relabel))
    assert answer.code == 0, answer.err
    chosen = Path(answer.out.splitlines()[-1])
    safetensors.torch.load_file(chosen)
    rows = (run_folder / "labels.csv").read_text().splitlines()[1:]
    groups = [row.split(",")[2] for row in rows if f"cluster-{row.split(',')[1]}" == chosen.stem]
    assert max(set(groups), key=groups.count) == str(relabel)
    assert answer.out.count("<- lowest loss") == 1


def test_assign_mistakes(fedgwc: Command, run_folder: Path, tmp_path: Path) -> None:
    good = client(tmp_path / "new.npz", 0)
    refused(fedgwc("assign", tmp_path, good), "holds no run")
    refused(fedgwc("assign", run_folder, tmp_path / "none.npz"), "none.npz")
    np.savez(tmp_path / "flat.npz", x=np.zeros((3, 64), np.float32), y=np.zeros(3, int))
    refused(fedgwc("assign", run_folder, tmp_path / "flat.npz"), "this run's have (1, 8, 8)")
    np.savez(tmp_path / "labels.npz", x=np.zeros((3, 1, 8, 8), np.float32), y=np.full(3, 10))
    refused(fedgwc("assign", run_folder, tmp_path / "labels.npz"), "labels must be in 0..9")
    for x in (np.nan, np.inf):
        np.savez(tmp_path / "x.npz", x=np.full((3, 1, 8, 8), x, np.float32), y=np.zeros(3, int))
        refused(fedgwc("assign", run_folder, tmp_path / "x.npz"), f"x.npz: x holds {x}; training needs finite 32-bit numbers")
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 1, 8, 8), np.float32))
    refused(fedgwc("assign", run_folder, tmp_path / "x.npz"), "y")
    shutil.copytree(run_folder, tmp_path / "run")
    (tmp_path / "run" / "models" / "cluster-0.safetensors").write_bytes(b"half")
    refused(fedgwc("assign", tmp_path / "run", good), "does not fit this run's model")
    shutil.rmtree(tmp_path / "run" / "models")
    refused(fedgwc("assign", tmp_path / "run", good), "has no models yet")


def test_assign_never_picks_a_model_that_has_diverged(fedgwc: Command, run_folder: Path, tmp_path: Path) -> None:
    new = client(tmp_path / "new.npz", 0)
    copy = shutil.copytree(run_folder, tmp_path / "run")
    paths = sorted((copy / "models").glob("*.safetensors"))
    for path in paths:
        weights = safetensors.torch.load_file(path)
        safetensors.torch.save_file({k: torch.full_like(w, torch.nan) for k, w in weights.items()}, path)
        answer = fedgwc("assign", copy, new)
        if path != paths[-1]:
            assert Path(answer.out.splitlines()[-1]) > path  # one that has not
    refused(answer, "no model of this run has a finite loss on it")


# a run from elsewhere


@pytest.fixture
def from_a_gpu(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same run as a machine with a CUDA device would have left it, seen on one without."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    copy = shutil.copytree(run_folder, tmp_path / "from a gpu")
    config = json.loads((copy / "config.json").read_text())
    config["experiment"]["engine"]["device"] = "cuda"
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def test_a_run_from_a_gpu_is_read_without_one(fedgwc: Command, from_a_gpu: Path, run_folder: Path, tmp_path: Path) -> None:
    assert fedgwc("replay", from_a_gpu).out == fedgwc("replay", run_folder).out
    new = client(tmp_path / "new.npz", 0)
    assert fedgwc("assign", from_a_gpu, new).code == 0


def test_training_on_a_gpu_that_is_not_there(fedgwc: Command, from_a_gpu: Path, tmp_path: Path) -> None:
    asked = ("--set", "engine.device=cuda", "--out", tmp_path / "none")
    for command in ("run", "compare"):
        refused(fedgwc(command, "digits", *asked), "PyTorch sees no CUDA device here; use another: --set engine.device=cpu")
    refused(fedgwc("run", "--resume", "--out", from_a_gpu), "--set engine.device=cpu")
    assert not (tmp_path / "none").exists()
    for path in (from_a_gpu / "state").iterdir():
        path.unlink()  # they name a run by its config.json, which the fixture has changed
    (from_a_gpu / "labels.csv").unlink()  # a finished run would not start again
    assert fedgwc("run", "--resume", "--out", from_a_gpu, "--set", "engine.device=cpu").code == 0


def test_resuming_names_the_algorithm_and_says_if_nothing_was_left_to_do(
    fedgwc: Command, run_folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(run_folder, tmp_path / "again")
    answer = fedgwc("run", "--resume", "--out", copy)
    assert answer.code == 0, answer.err
    assert f"{copy} was already finished, with round 40" in answer.err
    assert re.search(r"^fedgwc +\d+ ", answer.out, re.M), answer.out
    longer = fedgwc("run", "--resume", "--out", copy, "--set", "rounds=41")
    assert longer.code == 0, longer.err
    assert "already finished" not in longer.err


def test_a_run_is_made_longer_by_its_folder_alone(fedgwc: Command, run_folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run_folder, tmp_path / "longer")
    answer = fedgwc("run", "--resume", "--out", copy, "--set", "rounds=43", "--set", "about=longer", "--set", "evaluate.every=41")
    assert answer.code == 0, answer.err
    assert [row["round"] for row in RunFolder(copy).metrics()] == [40, 41, 43]
    refused(fedgwc("run", "--resume", "--out", copy, "--set", "local.lr=0.1"), "holds a run with other local")
    refused(fedgwc("run", "--resume", "--out", copy, "--set", "engine.dtype=float64"), "holds a run with other engine.dtype")
    refused(fedgwc("run", "--resume", "--set", "rounds=50"), "--resume needs --out")


# data


def test_data_ls_says_what_is_missing_and_what_to_do(fedgwc: Command, tmp_path: Path) -> None:
    answer = fedgwc("data", "ls", "--root", tmp_path)
    assert answer.code == 0, answer.err
    assert re.search(r"^digits +ready", answer.out, re.M)
    for name in SOURCES:
        assert re.search(rf"^{name} +missing", answer.out, re.M)
        assert re.search(rf"^({name} needs |  fedgwc data prepare {name} --root )", answer.out, re.M)
    assert f"  fedgwc data prepare cifar10 --root {tmp_path}\n" in answer.out
    assert "leaf_femnist needs train/*.json" in answer.out
    assert str(tmp_path) in answer.out
    assert list(tmp_path.iterdir()) == []  # looking writes nothing


def test_data_mistakes(fedgwc: Command, tmp_path: Path) -> None:
    refused(fedgwc("data", "verify", "cifar1000", "--root", tmp_path), "choose from")
    refused(fedgwc("data", "verify", "cifar10", "--root", tmp_path), "cifar10")
    for command in ("prepare", "verify"):
        refused(fedgwc("data", command, "digits", "--root", tmp_path), "digits ships with scikit-learn")
