"""Tables as CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any


def csv_bytes(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    """Write a table with a line of titles."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([head, *rows])
    return out.getvalue().encode()
