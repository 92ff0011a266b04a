"""Logs of one JSON object a line, each of which says its round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedgwc.core.errors import InputError
from fedgwc.io.files import regular_file


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read all complete lines of a log; none if there is no file.

    A crash can only cut off the last line, which is left out; any other was damaged later.
    """
    regular_file(path)
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(_row(line))
        except (ValueError, RecursionError) as error:
            if number < len(lines):
                why = getattr(error, "msg", error)  # json's own text counts lines within this one
                raise InputError(f"{path} cannot be read, line {number}: {why}; put it back as the run wrote it") from None
    return rows


def _row(line: bytes) -> dict[str, Any]:
    row = json.loads(line, parse_int=_whole)
    if not isinstance(row, dict) or type(row.get("round")) is not int or not 0 <= row["round"] < 2**31:
        raise ValueError(f"a line without a round, {str(row)[:60]}")
    return row


def _whole(digits: str) -> int:
    """Read a whole number; nothing that is counted here needs more than 64 bits."""
    if abs(number := int(digits)) >= 2**63:
        raise ValueError("a number of more than 64 bits")
    return number
