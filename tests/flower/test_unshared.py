"""Nodes need not tell how many samples of each class they have. What is not known is recorded as unknown, and read so."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedgwc.cli.app import main
from fedgwc.flower import Options, client_app
from fedgwc.flower.server import serve
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.folder import RunFolder

from .grids import LocalGrid
from .worlds import QUICK, BlobJob

REFUSAL = "share-class-counts=true in its node-config"


def ran(job: Experiment, out: Path, shares: tuple[bool, ...]) -> Path:
    """A run of twelve clients with 36 samples each, four to a node."""
    grid, app = LocalGrid(), client_app(job)
    for i, told in enumerate(shares):
        grid.add(100 + i, app, clients=f"{4 * i}-{4 * i + 3}", share_class_counts=told)
    serve(job, grid, out, Options(min_clients=12, **QUICK))
    return out


@pytest.fixture(params=["nobody tells", "some tell", "by an earlier version"])
def unshared(request: pytest.FixtureRequest, blob_job: BlobJob, tmp_path: Path) -> Path:
    folder = ran(blob_job(rounds=7), tmp_path / "r", (False, request.param == "some tell", False))
    if request.param == "by an earlier version":  # which took all samples of a client for one class
        np.savez(folder / "clients.npz", counts=np.full((12, 1), 36), sizes=np.full(12, 36))
        (folder / "counts.csv").write_text("client,class_0\n" + "".join(f"{k},36\n" for k in range(12)))
    return folder


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    return (int(end.value.code or 0), *capsys.readouterr())


@pytest.mark.parametrize("shares", [(False, False, False), (True, True, False)])
def test_what_not_everybody_tells_is_not_recorded(shares: tuple[bool, ...], blob_job: BlobJob, tmp_path: Path) -> None:
    folder = ran(blob_job(rounds=1, steps=1), tmp_path / "r", shares)
    known = dict(np.load(folder / "clients.npz"))
    assert known.keys() == {"sizes"}
    np.testing.assert_array_equal(known["sizes"], [36] * 12)
    assert not (folder / "counts.csv").exists()


def test_a_replay_leaves_out_scores_by_class(unshared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(capsys, "replay", unshared, "--export", tmp_path / "t.npz")
    assert code == 0, err
    assert "8 + 4" in out
    assert "WAS" not in out
    assert np.load(tmp_path / "t.npz").keys() == {"ids", "L", "sizes"}
    assert told(capsys, "replay", tmp_path / "t.npz", "--set", "algorithm.visits=4")[0] == 0


def test_score_says_what_is_lacking(unshared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, "score", unshared / "counts.csv", unshared / "labels.csv")
    assert code == 2
    assert REFUSAL in err


def test_a_report_says_what_is_lacking(unshared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, "report", unshared, "--out", tmp_path / "r.html")
    assert code == 0, err
    page = (tmp_path / "r.html").read_text()
    assert "not every client told how many samples of each class" in page
    assert "Accuracy of single clients" in page
    assert "WAS" not in page


def test_who_was_never_asked_has_no_known_size(blob_job: BlobJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Clients called by names are listed with their samples; one that no round has drawn has told none."""
    folder = ran(blob_job(rounds=1, steps=1), tmp_path / "r", (False,) * 3)
    names = [f"hospital {k}" for k in range(12)]
    RunFolder(folder).save_clients(None, np.array([36] * 11 + [0]), None, names)
    told(capsys, "report", folder, "--out", tmp_path / "r.html")
    rows = (tmp_path / "r.html").read_text().split("<tr>")
    samples = {name: next(row for row in rows if name in row).count(">36<") for name in ("hospital 1<", "hospital 11<")}
    assert samples == {"hospital 1<": 1, "hospital 11<": 0}


def test_a_client_is_assigned_without_class_counts(unshared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = np.load(tmp_path / "blobs.npz")
    mine = data["client"] == 1  # of the smaller kind
    np.savez(tmp_path / "new.npz", x=data["x"][mine], y=data["y"][mine])
    code, out, err = told(capsys, "assign", unshared, tmp_path / "new.npz")
    assert code == 0, err
    assert out.strip().endswith("cluster-2.safetensors")


def test_class_counts_of_a_time_when_they_were_known_do_not_stay(blob_job: BlobJob, tmp_path: Path) -> None:
    job = blob_job(rounds=1, steps=1)
    folder = RunFolder(ran(job, tmp_path / "r", (True,) * 3))
    assert (folder.path / "counts.csv").read_text().startswith("client,class_0,class_1,class_2,class_3\n0,")
    folder.save_clusters(np.zeros(12, np.int64), None, None)
    assert not (folder.path / "counts.csv").exists()


def test_a_damaged_list_of_clients_is_told(unshared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(unshared, tmp_path / "damaged")
    np.savez(tmp_path / "damaged" / "clients.npz", sizes=np.full((12, 1), 36))
    code, _, err = told(capsys, "report", tmp_path / "damaged")
    assert code == 2
    assert "sizes must be one whole number per client" in err
