"""The tables of docs/reliability.md, written anew from what was measured; the words around them are for people to write."""

from __future__ import annotations

import re
from pathlib import Path

from fedgwc.runs.tables import Table, markdown

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def with_tables(text: str, tables: dict[str, Table]) -> str:
    """`text` with everything between `<!-- table NAME -->` and `<!-- end -->` replaced; a table without a place is an error."""
    for name, table in tables.items():
        place = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.S)
        body = markdown(table)
        text, found = place.subn(lambda m, body=body: f"{m[1]}{body}{m[2]}", text)  # type: ignore[misc]
        if found != 1:
            raise ValueError(f"the page has {found} places for the table {name}, it needs one")
    return text


def write(tables: dict[str, Table]) -> None:
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
