"""Comparisons of made results, with numbers that one can do in the head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedgwc.comparison.contrasts import Panel, contrast, usual_reference
from fedgwc.comparison.gains import NEW, gains, shares
from fedgwc.comparison.outcomes import Candidate, Outcome
from fedgwc.comparison.ranking import ranks_of
from fedgwc.comparison.scoring import SCORES, Scoring, choose
from fedgwc.comparison.tables import clients_table, differences_table, notes
from fedgwc.core.errors import InputError


def hits_of(*clients: str, prefix: str = "") -> dict[str, Any]:
    """Per-client arrays of test outcomes, `hits_of("110", "01")`: two of three right, one of two."""
    offsets = np.concatenate([[0], np.cumsum([len(c) for c in clients])])
    accuracy = np.array([c.count("1") / len(c) if c else np.nan for c in clients])
    arrays = {"clients": np.arange(len(clients)), "accuracy": accuracy, "hits_offsets": offsets}
    return {prefix + k: v for k, v in {**arrays, "hits": np.array([*map(int, "".join(clients))], np.uint8)}.items()}


def of(
    name: str, *scores: float, validation: float | None = None, clients: dict[str, Any] | None = None, k: int = 0
) -> Candidate:
    """A method with a run for each score, seeds 0, 1, ..."""
    held_out = {} if validation is None else {"validation_accuracy": validation}
    rows = [[{"round": 1, "accuracy": x, **held_out}] for x in scores]
    choice = (("ifca.k", k),) if k else ()
    return Candidate(name, choice, {seed: Outcome(r, clients or {}) for seed, r in enumerate(rows)})


def test_differences_are_paired_by_seed() -> None:
    """Seeds differ by 0.3, the methods always by 0.1 or nearly so."""
    panel = contrast([of("fedavg", 0.1, 0.4, 0.7), of("ifca", 0.2, 0.51, 0.79)], "fedavg", Scoring())
    d = panel.lines[1].difference
    assert d is not None
    assert d.mean == pytest.approx(0.1)
    assert d.shown
    assert d.pairs == 3
    assert panel.lines[1].verdict == "better"
    assert panel.lines[0].difference is None


def test_a_seed_that_one_method_lacks_is_no_pair() -> None:
    lacking = Candidate("ifca", (), {1: Outcome([{"round": 1, "accuracy": 0.9}]), 2: Outcome([{"round": 1, "accuracy": 0.9}])})
    d = contrast([of("fedavg", 0.0, 0.8, 0.7), lacking], "fedavg", Scoring()).lines[1].difference
    assert d is not None
    assert [d.pairs, d.mean] == pytest.approx([2, 0.15])


def test_holm_counts_the_methods_of_the_table() -> None:
    others = [of(f"m{i}", 0.2 + i / 100, 0.51, 0.79) for i in range(3)]
    alone, together = (contrast([of("fedavg", 0.1, 0.4, 0.7), *some], "fedavg", Scoring()) for some in (others[:1], others))
    first = alone.lines[1].difference
    assert first is not None
    assert alone.lines[1].p == first.p
    assert together.lines[1].p == pytest.approx(min(1, 3 * first.p))  # the smallest of three


def test_one_seed_shows_nothing_and_says_so() -> None:
    panel = contrast([of("fedavg", 0.1), of("ifca", 0.9)], "fedavg", Scoring())
    assert [line.verdict for line in panel.lines] == ["–", "one seed, no interval"]
    assert not any(line.best for line in panel.lines)
    assert "One seed gives no interval" in " ".join(notes(panel))
    assert differences_table(panel).rows[1] == ["ifca", "90.0", "+80.0", "–", "one seed, no interval"]


def test_three_seeds_say_their_quantile() -> None:
    panel = contrast([of("fedavg", 0.1, 0.2, 0.3), of("ifca", 0.2, 0.3, 0.5)], "fedavg", Scoring())
    assert "t = 4.3" in " ".join(notes(panel))


def test_bold_is_only_what_beats_each_of_the_others() -> None:
    low, high = of("fedavg", 0.1, 0.2, 0.3), of("ifca", 0.9, 0.95, 0.99)
    near = of("cfl", 0.9, 0.95, 0.98)
    assert differences_table(contrast([low, high], "fedavg", Scoring())).bold == {(1, 1)}
    assert differences_table(contrast([low, high, near], "fedavg", Scoring())).bold == set()


def test_equal_scores_show_no_difference() -> None:
    panel = contrast([of("fedavg", 0.5, 0.6, 0.7), of("ifca", 0.5, 0.6, 0.7)], "fedavg", Scoring())
    assert panel.lines[1].verdict == "no difference shown"
    assert not any(line.best for line in panel.lines)


def test_the_reference_is_fedavg_where_it_is_there() -> None:
    assert usual_reference(["alone", "fedavg"]) == "fedavg"
    assert usual_reference(["alone", "ifca"]) == "alone"
    assert contrast([of("alone", 0.1), of("ifca", 0.2)], "fedavg", Scoring()).reference is None  # all its runs failed


def test_an_unknown_metric_names_the_known() -> None:
    for metric in SCORES:
        Scoring(metric)
    with pytest.raises(InputError, match=r"--metric must be one of accuracy, balanced_accuracy.*did you mean accuracy"):
        Scoring("acuracy")
    with pytest.raises(InputError, match="--when must be one of last, best, mean; got 'first'"):
        Scoring(when="first")
    with pytest.raises(InputError, match="no run has rand"):
        contrast([of("fedavg", 0.1)], "fedavg", Scoring("rand"))


ROWS = [{"round": r, "accuracy": a, "validation_accuracy": v} for r, a, v in ((1, 0.9, 0.1), (2, 0.3, 0.8), (3, 0.6, 0.5))]


@pytest.mark.parametrize(("when", "score", "validation"), [("last", 0.6, 0.5), ("best", 0.3, 0.8), ("mean", 0.6, 1.4 / 3)])
def test_when(when: str, score: float, validation: float) -> None:
    """The best round on test data, the first, is nobody's."""
    scoring, outcome = Scoring(when=when), Outcome(ROWS)
    assert [scoring.score(outcome), scoring.validation(outcome)] == pytest.approx([score, validation])


def test_best_without_validation_is_refused_with_the_cure() -> None:
    with pytest.raises(InputError, match=r"data\.validation=0\.2"):
        Scoring(when="best").score(Outcome([{"round": 1, "accuracy": 0.5}]))


def test_settings_are_chosen_on_validation_whatever_test_data_say() -> None:
    good, flattering = of("ifca", 0.1, 0.1, validation=0.9, k=2), of("ifca", 0.9, 0.9, validation=0.1, k=3)
    choice = choose([flattering, good], Scoring())
    assert choice.reported == (good,)
    assert choice.validation == {"ifca k=3": pytest.approx(0.1), "ifca k=2": pytest.approx(0.9)}


def test_without_validation_nothing_is_chosen_and_all_are_shown() -> None:
    both = of("ifca", 0.9, k=2), of("ifca", 0.1, validation=0.9, k=3)
    assert choose(both, Scoring()).reported == both


def test_a_setting_is_judged_over_the_seeds_that_all_settings_have() -> None:
    held = [Outcome([{"round": 1, "accuracy": 0.5, "validation_accuracy": v}]) for v in (0.2, 0.9, 0.3)]
    whole, partial = Candidate("ifca", (("ifca.k", 2),), dict(enumerate(held))), Candidate("ifca", (("ifca.k", 3),), {2: held[0]})
    assert choose([whole, partial], Scoring()).reported == (whole,)  # 0.3 against 0.2, of seed 2
    assert choose([whole, Candidate("ifca", (("ifca.k", 4),), {})], Scoring()).reported == (whole,)  # all its runs failed


def test_clients_that_gain_are_counted_and_tested_singly() -> None:
    """Of four clients one gains 10 of 10 samples, one 1 of 2, one loses, one has no test samples."""
    ours, theirs = hits_of("1" * 10, "10", "0", ""), hits_of("0" * 10, "00", "1", "")
    g = gains(ours, theirs)
    assert g is not None
    assert g.clients.tolist() == [0, 1, 2]
    assert g.gain.tolist() == [1.0, 0.5, -1.0]
    assert g.can_be_shown
    assert [g.better, g.shown] == pytest.approx([2 / 3, 1 / 3])
    assert g.p.tolist() == pytest.approx([3 * 2 / 1024, 1, 1])  # Benjamini-Hochberg: the smallest of three
    back = gains(theirs, ours)
    assert back is not None
    assert (-back.gain).tolist() == g.gain.tolist()


def test_five_test_samples_cannot_show_anything() -> None:
    g = gains(hits_of("11111"), hits_of("00000"))
    assert g is not None
    assert not g.can_be_shown


def test_other_test_samples_are_not_compared() -> None:
    assert gains(hits_of("11", "1"), hits_of("1", "11")) is None
    assert gains(hits_of("11"), {}) is None


def panel_with_gains() -> Panel:
    right, wrong = hits_of("1" * 8, "11"), hits_of("0" * 8, "11")
    new = hits_of("10", prefix=NEW)
    return contrast(
        [
            of("fedavg", 0.2, 0.2, clients=wrong | hits_of("00", prefix=NEW)),
            of("alone", 0.2, 0.2, clients=wrong),
            of("ifca", 0.9, 0.9, clients=right | new),
        ],
        "fedavg",
        Scoring(),
    )


def test_shares_of_clients_better_off_than_alone_and_than_the_global_model() -> None:
    table = clients_table(panel_with_gains())
    assert table.head[-6:] == [
        "better than training alone %",
        "shown better %",
        "better than the global model %",
        "shown better %",
        "newcomers: better than the global model %",
        "newcomers: shown better %",
    ]
    assert [row[-6:] for row in table.rows] == [
        ["0.0", "0.0", "–", "–", "–", "–"],
        ["–", "–", "0.0", "0.0", "–", "–"],
        ["50.0", "50.0", "50.0", "50.0", "100.0", "0.0"],
    ]


def test_the_bootstrap_over_clients_is_labelled_as_such() -> None:
    panel = panel_with_gains()
    assert differences_table(panel).head[-1] == "over clients [95 %]"
    assert panel.lines[2].over_clients == (0.0, 1.0)  # of four gains, 1, 0, 1 and 0
    assert "It describes these clients under these models" in " ".join(notes(panel))


def test_shares_average_over_the_seeds_in_common() -> None:
    def with_seeds(*hits: str) -> Candidate:
        return Candidate("ifca", (), {seed: Outcome([], hits_of(h, "1")) for seed, h in enumerate(hits)})

    found = shares(with_seeds("1", "1", "1"), with_seeds("0", "1"))
    assert found is not None
    assert (found.better, found.seeds) == (0.25, 2)


def test_ranks_are_of_methods_with_one_setting_in_all_conditions() -> None:
    panels = [contrast([of("fedavg", a), of("ifca", b), of("cfl", c)], "fedavg", Scoring()) for a, b, c in ((1, 2, 3), (1, 3, 2))]
    found = ranks_of(panels)
    assert found is not None
    assert found.methods == ("ifca", "cfl", "fedavg")
    assert found.ranks == (1.5, 1.5, 3.0)
    assert ranks_of(panels[:1]) is None
    several = contrast([of("fedavg", 1), of("ifca", 2, k=2), of("ifca", 3, k=3), of("cfl", 1)], "fedavg", Scoring())
    assert ranks_of([several, several]) is None
