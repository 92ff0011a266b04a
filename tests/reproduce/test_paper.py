"""What the paper prints, typed by hand."""

from __future__ import annotations

import pytest

from fedgwc.core.errors import InputError
from fedgwc.reproduce.paper import Row, all_rows, paper, printed
from fedgwc.runs.experiment import recipes

TABLES = ["clustering", "large-scale", "heterogeneity", "domains", "beta", "k", "aggregators"]
FIGURES = ["mechanism", "accuracy", "tree", "mse", "hom-het", "hom", "classes", "domains"]


def test_every_table_and_figure_is_there() -> None:
    assert list(paper()) == [*(f"table-{name}" for name in TABLES), *(f"fig-{name}" for name in FIGURES)]
    for name, entry in paper().items():
        assert entry.rows
        assert bool(entry.pictures) == name.startswith("fig-")
        assert ("Table" if name.startswith("table-") else "Figure") in entry.where
        if name.startswith("table-"):
            assert all(row.values for row in entry.rows)
    assert {row.recipe for row in all_rows()} == set(recipes()) - {"digits", "made", "silos"}


# Typed from the paper by hand: table, recipe, method, settings, metric, value
PRINTED = [
    ("table-clustering", "cifar100", "ifca", "k=5", "balanced_accuracy", "47.5 ± 3.5"),
    ("table-clustering", "cifar100", "fedgwc", "beta=0.5", "balanced_accuracy", "53.4 ± 0.4"),
    ("table-clustering", "cifar100", "fesem", "k=5", "wadb", "38.4 ± 13.0"),
    ("table-clustering", "femnist", "fedavgm", "", "balanced_accuracy", "83.3 ± 0.3"),
    ("table-clustering", "femnist", "ifca", "k=5", "was", "0.3 ± 0.1"),
    ("table-clustering", "cifar100", "fedgwc", "beta=0.5", "clusters", "4"),
    ("table-large-scale", "landmarks", "fedgwc", "beta=0.5", "accuracy", "57.4 ± 0.3"),
    ("table-large-scale", "inaturalist", "fairavg", "", "accuracy", "45.1 ± 0.2"),
    ("table-heterogeneity", "cifar100-het-10-0-90", "fedgwc", "", "wadb", "0.2 ± 0.2"),
    ("table-heterogeneity", "cifar10-het-40-30-30", "fesem", "k=3", "wadb", "20.6 ± 7.1"),
    ("table-domains", "cifar100-dom-40-30-30", "fedgwc", "", "rand", "0.6 ± 0.0"),
    ("table-domains", "cifar10-dom-40-30-30", "fedgwc", "", "rand", "0.9 ± 0.0"),
    ("table-beta", "cifar100", "fedgwc", "beta=2.0", "balanced_accuracy", "50.9"),
    ("table-beta", "landmarks", "fedgwc", "beta=0.1", "accuracy", "55.0"),
    ("table-k", "cifar100", "ifca", "k=3", "balanced_accuracy", "44.0 ± 1.6"),
    ("table-k", "femnist", "fesem", "k=5", "balanced_accuracy", "74.9 ± 0.1"),
    ("table-aggregators", "cifar100", "fedgwc", "momentum=0.9", "balanced_accuracy", "50.5 ± 0.3"),
    ("table-aggregators", "femnist", "fedgwc", "prox=0.01", "balanced_accuracy", "76.3 ± 0.2"),
    ("fig-hom", "cifar10", "fedgwc", "alpha=100.0", "clusters", "1"),
]


@pytest.mark.parametrize(("name", "recipe", "algorithm", "setting", "metric", "text"), PRINTED)
def test_values_are_the_papers(name: str, recipe: str, algorithm: str, setting: str, metric: str, text: str) -> None:
    rows = [r for r in paper()[name].rows if (r.recipe, r.algorithm) == (recipe, algorithm)]
    found = [r.values[metric].text for r in rows if metric in r.values and (not setting or r.set[-1].endswith(setting))]
    assert found[:1] == [text]


def test_a_printed_value_keeps_its_precision() -> None:
    value = printed("-0.8 ± 0.2")
    assert (value.mean, value.std) == (-0.8, 0.2)
    assert value.resolution == pytest.approx(0.05)
    assert (printed("4").std, printed("4").resolution) == (None, 0.5)
    with pytest.raises(InputError, match=r"written 53.4 ± 0.4 or 4, got 'about 5'"):
        Row("cifar100", "fedavg", accuracy="about 5")
