"""A cluster whose members have changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trials import ASK, FIVE, ids, known, squared

from fedgwc.algorithms.auto.membership import with_members
from fedgwc.io.state_file import pack


@pytest.mark.parametrize(("real", "whole"), [(np.float64, np.int64), (np.float32, np.int16)])
def test_what_is_known_of_those_who_stay_is_kept(real: Any, whole: Any) -> None:
    """4 and 6 leave, and 5 comes."""
    was = known(real=real, whole=whole)
    before = pack(was)
    now = with_members(was, ids(0, 2, 5, 8))
    for name in ("P", "visits", "sides", "spreads", "echo"):
        old, new = getattr(was, name), getattr(now, name)
        assert new.dtype == old.dtype
        assert new.tolist() == [[*old[k, :2], 0, old[k, 4]] if k >= 0 else [0] * 4 for k in (0, 1, -1, 4)]
    assert now.gamma.tolist() == [1, 2, 0, 5]
    assert now.gamma2.tolist() == [2, 3, 0, 6]
    np.testing.assert_array_equal(now.level, [0.5, 1.5, np.nan, 4.5])
    assert now.late is not None
    assert now.late.tolist() == [0, 2, 0, 2]
    assert (now.id, now.server, now.attempts) == (was.id, was.server, 2)
    assert pack(was) == before


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_who_comes_stands_in_the_middle_of_those_who_stayed(real: Any) -> None:
    """Who stays is at 0, 3 and 6 of a line: the middle is 3, wherever the others were."""
    now = with_members(known(real=real), ids(0, 2, 5, 7, 8))
    assert now.distances is not None
    assert now.distances.dtype == real
    np.testing.assert_allclose(now.distances, squared([0, 3, 3, 3, 6]), atol=1e-5)


def test_by_client_paths_are_kept_and_who_comes_takes_the_middle_one() -> None:
    now = with_members(known(replace(ASK, pairs_up_to=2)), ids(0, 2, 5, 8))
    assert now.distances is None
    assert now.paths is not None
    assert now.paths.tolist() == [[0, 0], [1, 1], [5 / 3, 17 / 3], [4, 16]]
    assert now.visits.tolist() == [1, 2, 0, 5]


def test_the_same_members_are_the_same_cluster() -> None:
    c = known()
    assert with_members(c, FIVE.copy()) is c


def test_what_was_known_by_place_is_forgotten() -> None:
    now = with_members(known(), ids(0, 2, 4, 6))
    assert (now.cut, now.told, now.told2) == (None, 0, 0)


def test_who_trained_last_is_still_known_unless_one_of_them_left() -> None:
    """2 and 4."""
    for some, places in ((ids(0, 1, 2, 3, 4, 6, 8), [2, 4]), (ids(2, 4), [0, 1])):
        before = with_members(known(), some).before
        assert before is not None
        assert before.tolist() == places
    assert with_members(known(), ids(0, 2, 6)).before is None


@given(st.integers(0, 10**6), st.booleans(), st.data())
def test_who_leaves_and_comes_back_changes_nothing_among_the_others(seed: int, by_pairs: bool, data: st.DataObject) -> None:
    """Whoever else came and went meanwhile."""
    rng = np.random.default_rng(seed)
    K = data.draw(st.integers(2, 9))
    at = ids(*sorted(data.draw(st.sets(st.integers(0, K - 1), min_size=1))))
    [c] = replace(ASK, pairs_up_to=K if by_pairs else 0).init(torch.zeros(1), K).clusters
    members = np.sort(rng.choice(30, K, replace=False))
    shape = (K, K) if by_pairs else (K,)
    c = replace(c, members=members, P=rng.random(shape), visits=rng.integers(0, 9, shape), gamma=rng.random(K))
    c = replace(c, late=rng.integers(0, 4, K), paths=None if by_pairs else rng.random((K, 3)))
    if by_pairs:
        c = replace(c, echo=rng.normal(size=shape), level=rng.random(K), distances=squared(rng.random(K).tolist()))
    others = np.setdiff1d(np.arange(30), members)[: rng.integers(0, 4)]
    again = with_members(with_members(c, np.union1d(members[at], others)), members)
    for name in ("P", "visits", "gamma", "late", "level", "echo", "distances", "paths"):
        old, new = getattr(c, name), getattr(again, name)
        assert (old is None) == (new is None)
        if old is not None:
            among = (at, slice(None)) if name == "paths" else np.ix_(*[at] * old.ndim)
            np.testing.assert_array_equal(new[among], old[among], err_msg=name)
            assert new.shape == old.shape
    if again.distances is not None:
        np.testing.assert_array_equal(again.distances, again.distances.T)
        assert not again.distances.diagonal().any()
