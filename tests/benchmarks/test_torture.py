"""Short versions of `make torture`, and its own parts by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.torture import attacks, crashes, damage, fuzz, load, page, reports
from benchmarks.torture.advisories import pins
from benchmarks.torture.attackers import Attack, Malicious, poisoned
from benchmarks.torture.mutate import mutated
from benchmarks.torture.readers import Reader, _cifar, _idx, _npz, _trace
from torch import Tensor

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.types import Ids, Updates
from fedgwc.core.work import Work
from fedgwc.data.federation import from_arrays
from fedgwc.runs.tables import Table


def assert_nothing_lost(found: crashes.Result) -> None:
    for name, tally in found.items():
        assert not tally["trouble"], name
        assert tally["equal"] == tally["runs"] > 0, name
        assert tally["unreadable"] == tally["needlessly"] == 0, name


def test_a_killed_run_ends_as_if_nothing_had_happened() -> None:
    found = crashes.measure(2, 60, names=("auto",))
    assert_nothing_lost(found)
    assert sum(found["auto"]["kills"].values()) >= 2


@pytest.mark.slow
def test_kills_at_every_moment_of_every_algorithm() -> None:
    found = crashes.measure(60, 240)
    assert_nothing_lost(found)
    assert found.keys() == ALGORITHMS.keys()


@pytest.mark.slow
def test_killed_reports() -> None:
    found = reports.measure(4, 120)
    assert found["kills"] == found["whole or none"] == found["run untouched"] == found["equal when written again"] == 4


@pytest.mark.slow
def test_damaged_checkpoints_and_full_disks_cost_nothing() -> None:
    found = damage.measure(1, 60)
    for what, tally in found.items():
        assert tally["noticed"] == tally["equal"] == tally["times"], what
    assert all(found[what]["times"] == 1 for what in damage.DAMAGES)
    assert found["file size limit"]["times"] == 1


def assert_all_refused(name: str, tally: fuzz.Tally) -> None:
    assert not tally.wrong, name
    assert not tally.forbidden, name
    assert tally.read + tally.refused == tally.inputs > 0
    assert tally.growth_mib < 300, name


@pytest.mark.parametrize(
    "make", [_cifar, _idx, lambda p: _npz(p, np.random.default_rng(0)), lambda p: _trace(p, np.random.default_rng(0))]
)
def test_broken_files_are_read_or_refused(make: Callable[[Path], Reader], tmp_path: Path) -> None:
    assert_all_refused("", fuzz.fuzz(make(tmp_path), 150, 20, 3, tmp_path))


@pytest.mark.slow
def test_broken_files_for_every_reader() -> None:
    for name, tally in fuzz.measure(6_000, 300).items():
        assert_all_refused(name, fuzz.Tally(**tally))


@pytest.mark.parametrize("runs", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_runs_in_one_folder(runs: int) -> None:
    found = load.together(runs, resume=False)
    assert (found["did it"], found["told"]) == (1, runs - 1)
    assert found["equal"]


@pytest.mark.slow
def test_ten_resumes_of_one_folder_and_a_long_run() -> None:
    assert load.together(10, resume=True)["other ends"] == 0
    grown = load.long_run(ALGORITHMS["auto"], 100, 4000, 120)
    assert grown["finite"]
    assert grown["last_mib"] - grown["first_mib"] < 50


@pytest.mark.slow
def test_fedgwc_isolates_clients_with_flipped_labels() -> None:
    alone = attacks.suffer("fedavg", "labels flipped", seed=0)[0]
    honest, _, caught, dragged = attacks.suffer("auto", "labels flipped", seed=0)
    assert honest > alone
    assert (caught, dragged) == (1.0, 0.0)


# Parts by hand


class Plain:
    """Three clients that step from the server's model by 1, 2 and 4, with losses 1, 2 and 3."""

    def train(self, clients: Ids, models: Tensor, which: Ids, seed: int, work: Work | None = None) -> Updates:
        step = torch.tensor([[1.0], [2.0], [4.0]])
        return Updates(
            clients, models[torch.from_numpy(which)] + step, torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([5, 5, 5])
        )


@pytest.mark.parametrize(
    ("attack", "models", "losses", "sizes"),
    [
        (Attack(), [11, 12, 14], [1, 2, 3], [5, 5, 5]),
        (Attack(scale=-1.0), [11, 8, 6], [1, 2, 3], [5, 5, 5]),
        (Attack(scale=10.0, together=True), [11, 40, 40], [1, 2, 3], [5, 5, 5]),
        (Attack(losses="zero"), [11, 12, 14], [1, 0, 0], [5, 5, 5]),
        (Attack(losses="typical", samples=100), [11, 12, 14], [1, 1, 1], [5, 500, 500]),
        (Attack(scale=1e39), [11], [1], [5]),  # not finite: a missing row, as in every engine
    ],
)
def test_what_liars_send(attack: Attack, models: list[int], losses: list[int], sizes: list[int]) -> None:
    engine = Malicious(Plain(), np.array([1, 2]), attack)  # type: ignore[arg-type]
    got = engine.train(np.arange(3), torch.full((1, 1), 10.0), np.zeros(3, np.int64), 0)
    assert got.models.ravel().tolist() == models
    assert got.losses.ravel().tolist() == losses
    assert got.sizes.tolist() == sizes


def test_flipped_labels_are_the_attackers_alone() -> None:
    federation = from_arrays(
        np.zeros((4, 1)), np.array([0, 2, 0, 2]), np.array([0, 0, 1, 1]), is_test=np.array([0, 1, 0, 1], bool)
    )
    assert poisoned(federation, np.array([1]), Attack(flip_labels=True)).y.tolist() == [0, 2, 2, 2]


def test_isolation_by_hand() -> None:
    """Clients 0, 1 and 2 lie; the second cluster is theirs by majority, one of them escapes, an honest client is there too."""
    assert attacks._isolation(np.array([1, 1, 0, 1, 0, 0]), np.array([0, 1, 2])) == (2 / 3, 1 / 3)


def test_mutations_depend_on_the_seed_only() -> None:
    one, two = (mutated(b"rows = 12\n" * 9, b"other", np.random.default_rng(5)) for _ in range(2))
    assert one == two != b"rows = 12\n" * 9


def test_a_page_gets_its_tables(tmp_path: Path) -> None:
    table = Table(["a", "b"], [["1", "2"]])
    text = page.with_tables("x\n<!-- table t -->\nold\n<!-- end -->\ny\n", {"t": table})
    assert text == "x\n<!-- table t -->\n| a | b |\n|---|---:|\n| 1 | 2 |\n<!-- end -->\ny\n"
    with pytest.raises(ValueError, match="0 places for the table t"):
        page.with_tables("nothing", {"t": table})


def test_pins_are_read() -> None:
    assert pins("numpy==2.4.6\ntorch==2.13.0+cpu ; x\n# no==pin\nrich<15\n") == [("numpy", "2.4.6"), ("torch", "2.13.0")]
