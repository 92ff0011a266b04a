"""Files that are almost right: real ones with something broken, outside or inside their packing."""

from __future__ import annotations

import gzip
import io
import re
import zipfile

import numpy as np

Rng = np.random.Generator
NUMBERS = (
    b"0 -0 1 -1 3 255 256 65536 2147483647 2147483648 4294967295 -2147483649 9223372036854775808 1000000000000 "
    b"1e12 1e400 -1e400 0.5 nan inf -inf NaN Infinity null true false 1e-400"
).split()
TOKENS = (b'"', b"'", b"{", b"}", b"[", b"]", b",", b":", b"=", b"\n", b"\x00", b"\xff\xfe", b"../../etc/passwd", b"#", b"\\")
WORDS = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, 10**12)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def mutated(raw: bytes, other: bytes, rng: Rng) -> bytes:
    """`raw` with one to three things broken; `other` is a file to take pieces from."""
    # Damage to packed bytes hardly ever gets past their checksum, so two times in three it is done inside.
    if raw[:2] == b"\x1f\x8b" and rng.random() < 2 / 3:
        return gzip.compress(mutated(gzip.decompress(raw), other, rng), 1)
    if raw[:4] == b"PK\x03\x04" and rng.random() < 2 / 3:
        return _inside_zip(raw, other, rng)
    if b"\x00" not in raw[:200] and rng.random() < 0.5:
        # Text in another shape is refused at once; another number may get far.
        for _ in range(int(rng.integers(1, 4))):
            raw = _number(raw, other, rng)
        return raw
    for _ in range(int(rng.integers(1, 4))):
        raw = _KINDS[int(rng.integers(len(_KINDS)))](raw, other, rng)
    return raw


def _inside_zip(raw: bytes, other: bytes, rng: Rng) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(buffer, "w") as new:
        names = old.namelist()
        chosen = int(rng.integers(len(names)))
        for i, name in enumerate(names):
            content = old.read(name)
            if i == chosen:
                if rng.random() < 0.1:
                    name = ("../" + name, "/etc/" + name, name + "x", "x/")[int(rng.integers(4))]
                # Most of an array's bytes are numbers, and any are fine: the header is where the trouble starts.
                head = 128 if content[:6] == b"\x93NUMPY" and rng.random() < 0.8 else len(content)
                content = mutated(content[:head], other, rng) + content[head:]
            new.writestr(name, content)
    return buffer.getvalue()


def _at(raw: bytes, rng: Rng) -> int:
    """Anywhere, but every other time near the beginning, where headers are."""
    return int(rng.integers(min(len(raw), 200) + 1 if rng.random() < 0.5 else len(raw) + 1))


def _flip(raw: bytes, _: bytes, rng: Rng) -> bytes:
    at = min(_at(raw, rng), len(raw) - 1)
    return raw[:at] + bytes([raw[at] ^ 1 << int(rng.integers(8))]) + raw[at + 1 :] if raw else raw


def _random(raw: bytes, _: bytes, rng: Rng) -> bytes:
    at = _at(raw, rng)
    junk = rng.bytes(int(rng.integers(1, 9)))
    return raw[:at] + junk + raw[at + (len(junk) if rng.random() < 0.5 else 0) :]


def _cut(raw: bytes, _: bytes, rng: Rng) -> bytes:
    return raw[: _at(raw, rng)]


def _drop(raw: bytes, _: bytes, rng: Rng) -> bytes:
    at = _at(raw, rng)
    return raw[:at] + raw[at + int(rng.integers(1, 65)) :]


def _repeat(raw: bytes, _: bytes, rng: Rng) -> bytes:
    at, length = _at(raw, rng), int(rng.integers(1, 65))
    return raw[:at] + raw[at : at + length] * int(rng.integers(1, 4)) + raw[at:]


def _splice(raw: bytes, other: bytes, rng: Rng) -> bytes:
    return raw[: _at(raw, rng)] + other[_at(other, rng) :]


def _word(raw: bytes, _: bytes, rng: Rng) -> bytes:
    at, size = _at(raw, rng), (2, 4, 8)[int(rng.integers(3))]
    value: int = WORDS[int(rng.integers(len(WORDS)))] % 2 ** (8 * size)
    return raw[:at] + value.to_bytes(size, ("little", "big")[int(rng.integers(2))]) + raw[at + size :]


def _number(raw: bytes, _: bytes, rng: Rng) -> bytes:
    """Another number where one is written in digits."""
    start = 0 if len(raw) < 2000 else int(rng.integers(len(raw) - 1000))
    found = list(_NUMBER.finditer(raw[start : start + 2000]))
    if not found:
        return raw
    match = found[int(rng.integers(len(found)))]
    return raw[: start + match.start()] + NUMBERS[int(rng.integers(len(NUMBERS)))] + raw[start + match.end() :]


def _token(raw: bytes, _: bytes, rng: Rng) -> bytes:
    at = _at(raw, rng)
    return raw[:at] + TOKENS[int(rng.integers(len(TOKENS)))] + raw[at:]


def _deep(raw: bytes, _: bytes, rng: Rng) -> bytes:
    """Nested beyond all reason, now and then."""
    at = _at(raw, rng)
    return raw[:at] + b"[" * (100_000 if rng.random() < 0.05 else 3) + raw[at:]


_KINDS = (_flip, _random, _cut, _drop, _repeat, _splice, _word, _number, _number, _token, _deep)
