"""Sums that hide their terms: each party adds a mask to its numbers, and all masks cancel in the sum over the parties.

Any two parties share a secret (X25519 key agreement, fresh keys for every sum); a stream cipher keyed with it gives their
mask, which one of them adds and the other subtracts, modulo 2^64. To anybody without one of the secrets each masked vector
looks like random bits. If a single party does not deliver, the masks do not cancel, and the others' vectors say nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedgwc.core.errors import InputError
from fedgwc.core.types import Floats

Words = NDArray[np.uint64]

KEY_BYTES = 32
MOST_PARTIES = 10**5
# A number is two words: HIGH counts 2^-10, LOW the rest in units of 2^-50. One word would hold either large squares or fine ones.
HIGH, LOW = 2.0**10, 2.0**40


def encode(values: Floats, parties: int) -> Words:
    """Write numbers [...] in fixed point modulo 2^64, as [2, ...].

    Sums over so many parties cannot overflow.
    """
    scaled = values * HIGH
    if not 1 <= parties <= MOST_PARTIES or not (np.abs(scaled) < 2.0**62 / parties).all():
        raise InputError(f"a number is too large for a sum over {parties} parties")  # which one is not to be known
    high = np.floor(scaled)
    return np.stack([high.astype(np.int64).view(np.uint64), np.rint((scaled - high) * LOW).astype(np.uint64)])


def decode(total: Words) -> Floats:
    """Read back a sum [...] of encoded numbers [2, ...]."""
    return np.asarray(total[0].view(np.int64) / HIGH + total[1] / (HIGH * LOW), np.float64)


def new_secret() -> bytes:
    """Draw a party's secret for one sum."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_key(secret: bytes) -> bytes:
    """Return the key that a party shows the others."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def is_valid_key(key: bytes) -> bool:
    """Tell whether a public key is sound: some give everybody one secret."""
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        return False
    return True


def mask(secret: bytes, keys: Iterable[bytes], purpose: bytes, shape: tuple[int, ...]) -> Words:
    """Compute the mask of `secret`'s owner for a sum over `keys`.

    All parties must name the same keys and the same purpose, or nothing cancels. A secret and a purpose may be used once.
    """
    own, mine = X25519PrivateKey.from_private_bytes(secret), public_key(secret)
    parties = sorted(set(keys))
    if mine not in parties:
        raise InputError("this party's key is not among those of the sum")
    about = hashlib.sha256(b"".join([*parties, purpose])).digest()
    total = np.zeros(shape, np.uint64)
    for key in parties:
        if key != mine:
            shared = own.exchange(X25519PublicKey.from_public_bytes(key))
            stream = _stream(shared, about + min(key, mine) + max(key, mine), shape)
            total = total + stream if mine < key else total - stream
    return total


def _stream(shared: bytes, about: bytes, shape: tuple[int, ...]) -> Words:
    """Expand a shared secret to words that look random to all others."""
    key = HKDF(SHA256(), KEY_BYTES, salt=None, info=b"fedgwc masked sum" + about).derive(shared)
    # The nonce may be fixed because the key is used for this one stream.
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * int(np.prod(shape)))), "<u8").reshape(shape).astype(np.uint64)


def total(masked: Sequence[Words]) -> Words:
    """Add all parties' masked numbers, so that the masks cancel."""
    return np.asarray(np.add.reduce(np.stack(masked), axis=0), np.uint64)
