from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.io import safe_pickle

# numpy 1 under Python 2, protocol 2: {'data': uint8 [[1, 2], [3, 4]], 'labels': [7, 8], 'name': 'x'}
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
    b"(K\x01K\x02K\x02\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    b"\x89U\x04\x01\x02\x03\x04tbU\x06labelsq\x08]q\x09(K\x07K\x08eU\x04nameU\x01xu."
)


def load(raw: bytes) -> Any:
    return safe_pickle.load(io.BytesIO(raw), "made")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "int64", ">i4", "float32", "bool"])
def test_plain_data_comes_back(protocol: int, dtype: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    value = {"a": [1, 2.5, None, True, b"x" * 300, "text"], b"b": (array, np.asfortranarray(array)), 3: {4: [5]}}
    got = load(pickle.dumps(value, protocol))
    assert got["a"] == value["a"]
    for came in got[b"b"]:
        assert came.dtype == array.dtype.newbyteorder("=")  # numpy itself turns foreign byte order into its own
        np.testing.assert_array_equal(came, array)


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_python_2_pickle(module: bytes) -> None:
    got = load(PYTHON_2.replace(b"numpy.core.multiarray", module))
    assert got[b"data"].tolist() == [[1, 2], [3, 4]]
    assert got[b"labels"] == [7, 8]


class Runs:
    def __init__(self, call: Any, *args: object) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> Any:
        return self.call, self.args


def test_a_malicious_pickle_runs_nothing(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    for evil in (Runs(os.system, f"touch {target}"), Runs(eval, f"open({str(target)!r}, 'w')"), Runs(target.touch)):
        with pytest.raises(InputError, match="nothing of it was run"):
            load(pickle.dumps({"data": [evil]}))
    assert not target.exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not a pickle",
        pickle.dumps({"a": 1})[:-3],
        pickle.dumps(np.array([{}], object)),
        pickle.dumps(np.zeros(2, "i4,f4")),
        pickle.dumps(np.float64(1)),
        pickle.dumps(Path("x")),
        # the promise of an array larger than the file
        PYTHON_2.replace(b"K\x02K\x02\x86", b"K\x02J\xff\xff\xff\x7f\x86"),
        # an array that is allocated before it is filled
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I1000000000000\ntS'b'\ntR.",
        # changing the loader's own objects
        b"cnumpy.core.multiarray\n_reconstruct\n(dS'__call__'\nI1\nsb.",
        b"cnumpy\nndarray\n(tR.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x0f.",
    ],
)
def test_anything_else_is_refused(raw: bytes) -> None:
    with pytest.raises(InputError, match="made is not a pickle of plain data"):
        load(raw)


def test_nothing_is_made_that_was_not_read() -> None:
    # one text of 10,000 letters, which is encoded a hundred times
    text = b"X" + (10_000).to_bytes(4, "little") + b"x" * 10_000 + b"q\x00"
    again = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    with pytest.raises(InputError, match="more of its bytes than there are"):
        load(b"\x80\x02(" + text + 100 * again + b"t.")
    assert load(b"\x80\x02" + text + again + b".") == b"x" * 10_000


def test_a_far_place_in_the_memo_costs_nothing() -> None:
    """C's unpickler would clear 8 bytes for every place up to twice the number, 17 GB here."""
    assert load(b"\x80\x02K\x07r\xff\xff\xff\x3f.") == 7
