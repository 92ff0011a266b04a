"""npz files of others: plain arrays come back, anything else is refused before memory is asked for."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedgwc.core.errors import InputError
from fedgwc.io import npz
from fedgwc.io.npz import read_npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_plain_arrays_come_back(tmp_path: Path, save: Callable[..., None]) -> None:
    arrays = {
        "f": np.arange(6.0).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "big_endian": np.arange(3, dtype=">i4"),
        "text": np.array(["a", "bc"]),
        "flags": np.array([True, False]),
        "number": np.array(7),
        "nothing": np.empty((0, 5), np.float32),
    }
    save(tmp_path / "a.npz", **arrays)
    got = read_npz(tmp_path / "a.npz")
    assert got.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name], array)
        assert got[name].dtype.isnative
    assert read_npz(tmp_path / "a.npz", ("f", "absent")).keys() == {"f"}
    got["f"][0, 0] = 1.0  # not a view of the file


def test_a_device_is_not_read() -> None:
    """/dev/zero would be read until memory is full."""
    with pytest.raises(InputError, match="/dev/null is a device"):
        read_npz(Path("/dev/null"))


def packed(path: Path, content: bytes, how: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr("x.npy", content)
    return path


def npy(shape: tuple[int, ...], descr: str = "<f8", body: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue() + body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy((10**12,)), "promises 8000000000000 bytes"),
        (npy((2**40, 2**40)), "promises"),
        (npy((2,), body=bytes(15)), "promises 16 bytes"),
        (npy((1,), "|O", bytes(8)), "only numbers and text"),
        (npy((1,), "|V8", bytes(8)), "only numbers and text"),
        (npy((1,), "<M8[s]", bytes(8)), "only numbers and text"),
        (b"text", "cannot be read"),
    ],
)
def test_what_is_no_plain_array_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_npz(packed(tmp_path / "a.npz", content))


def test_a_member_cannot_promise_more_than_it_holds(tmp_path: Path) -> None:
    raw = bytearray(packed(tmp_path / "a.npz", npy((1,), body=bytes(8))).read_bytes())
    at = raw.index(b"PK\x01\x02") + 24  # its length, as the directory has it
    raw[at : at + 4] = (2**31).to_bytes(4, "little")
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(InputError, match="promises 2147483648 bytes, more than it can hold"):
        read_npz(tmp_path / "a.npz")
    with pytest.raises(InputError, match="unusual"):
        read_npz(packed(tmp_path / "b.npz", npy((1,), body=bytes(8)), zipfile.ZIP_BZIP2))


def test_no_more_is_unpacked_than_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert npz.memory() > 2**30
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(2**17), y=np.zeros(2))
    monkeypatch.setattr(npz, "memory", lambda: 2**20)
    assert read_npz(path, ["y"])["y"].tolist() == [0, 0]  # only what is read counts
    with pytest.raises(InputError, match=r"unpacks to 0\.0 GiB, more than half of this machine"):
        read_npz(path)


def test_packed_bytes_are_not_used_twice(tmp_path: Path) -> None:
    """Two names in the directory for one member: the way a zip of kilobytes unpacks to gigabytes."""
    raw = packed(tmp_path / "a.npz", npy((100,), body=bytes(800)), zipfile.ZIP_STORED).read_bytes()
    start, end = raw.index(b"PK\x01\x02"), raw.index(b"PK\x05\x06")
    entry, tail = raw[start:end], bytearray(raw[end:])
    more = b"".join(entry.replace(b"x.npy", b"%c.npy" % (97 + i)) for i in range(4))
    tail[8:12] = (5).to_bytes(2, "little") * 2
    tail[12:16] = (len(entry) + len(more)).to_bytes(4, "little")
    (tmp_path / "a.npz").write_bytes(raw[:start] + entry + more + tail)
    with pytest.raises(InputError, match="longer than the file"):
        read_npz(tmp_path / "a.npz")
