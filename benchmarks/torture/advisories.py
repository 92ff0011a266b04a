"""Published advisories for the pinned dependencies, where a database of them can be reached."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from fedgwc.runs.tables import Table

Result = dict[str, Any]
DATABASE = "https://api.osv.dev/v1/querybatch"
PINS = Path(__file__).parents[2] / "constraints.txt"
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;+]+)")


def pins(text: str) -> list[tuple[str, str]]:
    """(name, version) of every line `name==version`."""
    return [match.groups() for line in text.splitlines() if (match := _PIN.match(line))]  # type: ignore[misc]


def measure() -> Result:
    asked = pins(PINS.read_text())
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in asked]
    request = urllib.request.Request(DATABASE, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - a constant address
            results = json.load(answer)["results"]
    except (urllib.error.URLError, TimeoutError, ValueError, KeyError) as error:
        return {"pins": len(asked), "checked": False, "why": type(error).__name__, "found": {}}
    found = {f"{n} {v}": [a["id"] for a in r.get("vulns", [])] for (n, v), r in zip(asked, results, strict=True)}
    return {"pins": len(asked), "checked": True, "found": {name: ids for name, ids in found.items() if ids}}


def tables(found: Result) -> dict[str, Table]:
    if not found["checked"]:
        verdict = "not checked: the database could not be reached from where this was measured"
    else:
        verdict = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in found["found"].items()) or "none known"
    return {"advisories": Table(["pinned dependencies", "advisories"], [[str(found["pins"]), verdict]])}
