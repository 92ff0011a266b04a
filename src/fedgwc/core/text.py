"""Text that is safe to show.

Clients' names come from files, and are shown in tables, spreadsheets, pages and terminals.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

LONGEST = 200  # characters that are kept
UNREADABLE = "\N{REPLACEMENT CHARACTER}"


def readable(names: Iterable[str]) -> tuple[str, ...]:
    """Return names [N] in printable characters only.

    The result is empty if the names only repeat the clients' numbers.

    >>> readable(["Łódź", "a\\nb"]), readable(["0", "1"])
    (('Łódź', 'a�b'), ())
    """
    found = tuple(printable(name[:LONGEST]) for name in names)
    return () if all(name == str(k) for k, name in enumerate(found)) else found


def printable(text: str) -> str:
    """Replace characters that move a cursor or change colours."""
    return "".join(c if c.isprintable() else UNREADABLE for c in text)


def csv_cell(name: str) -> str:
    """Protect a spreadsheet from computing a name.

    Spreadsheets compute a cell that begins like a formula, unless an apostrophe precedes it.

    >>> csv_cell("=1+1"), csv_cell("ward 1")
    ("'=1+1", 'ward 1')
    """
    begins = unicodedata.normalize("NFKC", name[:1])  # in some countries full-width signs count as well
    return f"'{name}" if begins in {"=", "+", "-", "@"} else name


def plural(n: int, what: str) -> str:
    """
    >>> plural(1, "client"), plural(2, "client")
    ('1 client', '2 clients')
    """
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
