"""Checked files of algorithms' states.

A state is a tree of frozen dataclasses, tuples, dicts, arrays and plain values. Arrays go into safetensors, the rest into
its JSON header, so reading a file never runs anything. The class of each node comes from the annotations of the state that
is expected, never from the file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from fedgwc.core.errors import InputError

MAGIC = b"fedgwc-state-9\n"  # another number whenever what is written changes
OF_ANOTHER_VERSION = b"fedgwc-state-"
_DIGEST = hashlib.sha256().digest_size


def pack(value: Any) -> bytes:
    """Write a state as a header with a checksum, then safetensors."""
    arrays: dict[str, Tensor] = {}
    tree = _encode(value, arrays)
    body = safetensors.torch.save(arrays, {"tree": json.dumps(tree)})
    return MAGIC + hashlib.sha256(body).digest() + body


def unpack(data: bytes, kind: Any, device: torch.device | str = "cpu") -> Any:
    """Read a value of type `kind` that `pack` wrote.

    Torch tensors go to `device`.
    """
    body = verified_content(data)
    try:
        length = int.from_bytes(body[:8], "little")
        tree = json.loads(json.loads(body[8 : 8 + length])["__metadata__"]["tree"])
        return _decode(tree, kind, safetensors.torch.load(body), device)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise InputError(f"the checkpoint holds another kind of state than the algorithm expects: {error}") from None


def verified_content(data: bytes) -> bytes:
    """Verify a checkpoint and return the content below its header."""
    body = data[len(MAGIC) + _DIGEST :]
    if not data.startswith(MAGIC):
        if data.startswith(OF_ANOTHER_VERSION):
            raise InputError("another version of fedgwc wrote it, which config.json names; finish the run with that one")
        raise InputError("not a checkpoint of fedgwc")
    if hashlib.sha256(body).digest() != data[len(MAGIC) : len(MAGIC) + _DIGEST]:
        raise InputError("the checkpoint is damaged: its checksum does not match")
    return body


def nbytes(value: Any) -> int:
    """Sum the bytes of all arrays in a state."""
    if isinstance(value, Tensor | np.ndarray):
        return int(value.nbytes)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(nbytes(getattr(value, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, tuple):
        return sum(map(nbytes, value))
    return sum(map(nbytes, value.values())) if isinstance(value, dict) else 0


def _encode(value: Any, arrays: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        name = f"a{len(arrays)}"
        tensor = value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value, order="C"))
        arrays[name] = tensor.contiguous().clone()
        return {"array": name}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"fields": {f.name: _encode(getattr(value, f.name), arrays) for f in dataclasses.fields(value)}}
    if isinstance(value, tuple):
        return {"items": [_encode(v, arrays) for v in value]}
    if isinstance(value, dict):
        return {"pairs": [[k, _encode(v, arrays)] for k, v in value.items()]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a state may hold arrays, numbers, text, tuples, dicts and dataclasses, not {type(value).__name__}")


def _decode(tree: Any, hint: Any, arrays: dict[str, Tensor], device: torch.device | str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if tree is None:
        return None
    if origin in (types.UnionType, typing.Union):
        return _decode(tree, next(a for a in args if a is not type(None)), arrays, device)
    if hint is Tensor:
        return arrays[tree["array"]].to(device)
    if isinstance(tree, dict) and tree.keys() == {"array"}:  # numpy's own annotation has another form in every release
        return arrays[tree["array"]].numpy()
    if dataclasses.is_dataclass(origin or hint):
        kind = typing.cast(Any, origin or hint)
        generic = dict(zip(getattr(kind, "__parameters__", ()), args, strict=True))
        hints = {k: generic.get(h, h) for k, h in typing.get_type_hints(kind).items()}
        return kind(**{k: _decode(v, hints[k], arrays, device) for k, v in tree["fields"].items()})
    if origin is tuple:
        each = [args[0]] * len(tree["items"]) if args[-1] is Ellipsis else args
        return tuple(_decode(v, kind, arrays, device) for v, kind in zip(tree["items"], each, strict=True))
    if origin is dict:
        return {k: _decode(v, args[1], arrays, device) for k, v in tree["pairs"]}
    if isinstance(tree, dict):
        raise TypeError(f"the annotation {hint} does not say what is in it")
    return tree
