from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fedgwc.core.errors import InputError
from fedgwc.data.sources import fedvision
from fedgwc.data.sources.fedvision import inaturalist, landmarks, min_images_for

Image = pytest.importorskip("PIL.Image", reason="photographs need the extra `images`")

USERS = {"2": 5, "10": 3, "ann": 1}


def write_tree(folder: Path, train: str, *, label: bool) -> None:
    """Photographs of one colour each: the red of image i is 10 i."""
    folder.mkdir(parents=True, exist_ok=True)
    owners = [user for user, n in USERS.items() for _ in range(n)]
    more = ",label" if label else ""
    extra = ",99" if label else ""
    rows = [f"{user},img{i},{i % 3}{extra}" for i, user in enumerate(owners)]
    (folder / train).write_text(f"user_id,image_id,class{more}\n" + "\n".join(rows) + "\n")
    (folder / "test.csv").write_text(f"image_id,class{more}\nimg9,3{extra}\nimg10,0{extra}\n")
    (folder / "images" / "sub").mkdir(parents=True)
    for i in range(11):
        place = "images/sub" if i % 2 else "images"
        Image.new("RGB", (40, 30), (10 * i, 50, 60)).save(folder / place / f"img{i}.jpg", quality=95)


def test_clients_are_users(tmp_path: Path) -> None:
    write_tree(tmp_path / "landmarks", "federated_train.csv", label=False)
    got = landmarks(seed=0, root=str(tmp_path), size=16)
    assert (got.n_clients, got.n_classes, got.shape) == (2, 4, (3, 16, 16))
    assert sorted([*got.train[0], *got.test[0]]) == [0, 1, 2, 3, 4]
    assert sorted([*got.train[1], *got.test[1]]) == [5, 6, 7]
    assert got.test.sizes.tolist() == [1, 1]
    assert got.client_names == ("2", "10")
    assert got.notes[0] == "2 of 3 users have at least 2 images"
    assert "no min_images gives the 823 clients" in got.notes[1]
    # the global test set: rows nobody owns, readable like the others
    assert got.global_test is not None
    assert got.global_test.tolist() == [9, 10]
    assert got.y[torch.from_numpy(got.global_test)].tolist() == [3, 0]
    assert abs(int(got.x[torch.tensor([10])][0, 0, 8, 8]) - 100) <= 3


def test_the_filter_leaves_the_others_alone(tmp_path: Path) -> None:
    write_tree(tmp_path, "federated_train_user_120k.csv", label=True)
    loose, strict = (inaturalist(seed=3, root=str(tmp_path), size=8, min_images=m) for m in (2, 4))
    assert strict.n_clients == 1
    assert np.array_equal(strict.test[0], loose.test[0])
    with pytest.raises(InputError, match="the most is 5"):
        inaturalist(seed=0, root=str(tmp_path), size=8, min_images=6)


def test_splits_straight_from_the_zip(tmp_path: Path) -> None:
    write_tree(tmp_path, "federated_train.csv", label=False)
    with zipfile.ZipFile(tmp_path / "landmarks-user-160k.zip", "w") as archive:
        for name in ("federated_train.csv", "test.csv"):
            archive.write(tmp_path / name, f"landmarks-user-160k/{name}")
            (tmp_path / name).unlink()
    assert fedvision.open_split(fedvision.LANDMARKS, tmp_path).users == ("2", "10", "ann")


def test_missing_images_are_said_at_once(tmp_path: Path) -> None:
    write_tree(tmp_path, "federated_train.csv", label=False)
    (tmp_path / "images" / "img4.jpg").unlink()
    (tmp_path / "images" / "img8.jpg").unlink()  # of a user that is dropped: not needed
    with pytest.raises(InputError, match=r"1 of 8 images are not below .*img4.jpg"):
        landmarks(seed=0, root=str(tmp_path), size=8)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "user_id,image_id\n1,2\n",
        "user_id,image_id,class\n",
        "user_id,image_id,class\n1,2,x\n",
        "user_id,image_id,class\n1,2\n",
    ],
)
def test_broken_csv_is_named(text: str) -> None:
    with pytest.raises(InputError, match="made, train"):
        fedvision.read_split(text, None, "made")


def test_min_images_for() -> None:
    sizes = np.array([2, 9, 5, 5])
    assert [min_images_for(sizes, n) for n in range(6)] == [None, 6, None, 3, 1, None]
    for n in (1, 3, 4):
        least = min_images_for(sizes, n)
        assert least is not None
        assert (sizes >= least).sum() == n
