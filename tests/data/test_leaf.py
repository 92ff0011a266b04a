from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.data.sources.leaf import leaf_femnist


def write_shard(path: Path, users: dict[str, int], first: int = 0) -> None:
    """Each user's images are all of one grey: `first` of 255 for the first image, then one more each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {u: {"x": [[(first + i) / 255] * 784 for i in range(n)], "y": [i % 62 for i in range(n)]} for u, n in users.items()}
    path.write_text(json.dumps({"users": list(users), "num_samples": list(users.values()), "user_data": data}))


def test_one_folder_with_a_held_out_share(tmp_path: Path) -> None:
    write_shard(tmp_path / "all_data" / "all_data_0.json", {"ann": 10, "bob": 1})
    write_shard(tmp_path / "all_data" / "all_data_1.json", {"cy": 5}, first=250)
    got = leaf_femnist(seed=0, root=str(tmp_path))
    assert (got.n_clients, got.n_classes, got.shape) == (2, 62, (1, 28, 28))
    assert got.client_names == ("ann", "cy")
    assert got.test.sizes.tolist() == [2, 1]
    assert sorted([*got.train[1], *got.test[1]]) == [11, 12, 13, 14, 15]
    assert got.x[11:, 0, 0, 0].tolist() == [250, 251, 252, 253, 254]
    assert "1 dropped" in got.notes[0]
    again, other = (leaf_femnist(seed=s, root=str(tmp_path)) for s in (0, 1))
    assert np.array_equal(got.test.flat, again.test.flat)
    assert not np.array_equal(got.test.flat, other.test.flat)
    # dropping others does not change a user's split
    assert np.array_equal(leaf_femnist(seed=0, root=str(tmp_path), min_images=8).test[0], got.test[0])


def test_train_and_test_folders(tmp_path: Path) -> None:
    write_shard(tmp_path / "train" / "a.json", {"ann": 4, "bob": 3, "cy": 2})
    write_shard(tmp_path / "test" / "a.json", {"cy": 1, "ann": 2})
    got = leaf_femnist(seed=0, root=str(tmp_path))
    assert got.client_names == ("ann", "cy")
    assert got.train.sizes.tolist() == [4, 2]
    assert got.test[0].tolist() == [10, 11]
    assert got.test[1].tolist() == [9]
    write_shard(tmp_path / "test" / "a.json", {"dan": 1})
    with pytest.raises(InputError, match="share no user"):
        leaf_femnist(seed=0, root=str(tmp_path))


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no leaf_femnist data"):
        leaf_femnist(seed=0, root=str(tmp_path))
    path = tmp_path / "all_data_0.json"
    for text in ("{", "[]", "{}", '{"users": ["a"], "num_samples": [2], "user_data": {"a": {"x": [], "y": []}}}'):
        path.write_text(text)
        with pytest.raises(InputError, match=r"all_data_0\.json"):
            leaf_femnist(seed=0, root=str(tmp_path))
    write_shard(path, {"ann": 3})
    write_shard(tmp_path / "all_data_1.json", {"ann": 3})
    with pytest.raises(InputError, match="'ann' again"):
        leaf_femnist(seed=0, root=str(tmp_path))
