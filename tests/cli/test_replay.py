"""`fedgwc replay`: what it prints, and one sentence for a mistake."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Command, refused


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
