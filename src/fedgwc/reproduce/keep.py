"""Finished runs made small enough to commit.

Settings, results and provenance, without data, models or machine paths.
"""

from __future__ import annotations

import datetime
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgwc.core.errors import InputError
from fedgwc.core.settings import folder_name
from fedgwc.io.atomic import write_atomically
from fedgwc.reproduce.outcome import PROVENANCE, Outcome, read
from fedgwc.reproduce.provenance import UNKNOWN
from fedgwc.runs.folder import VERDICTS, RunFolder

ROWS = 100  # evaluations kept
LIMIT = 200_000  # bytes of a kept run; P matrices and verdicts are left out where they would not fit
SMALL = ("labels.csv", "clients.npz", "per_client.npz")  # a report can be made from these and the tree

# An absolute path's folders, wherever it stands in a text; addresses (https://...) are no paths of a machine.
_FOLDERS = re.compile(r"(?<![\w/:.])~?/(?=[\w.])(?:[^\s/'\"]+/)*")


def keep(run: Path, into: Path, provenance: Mapping[str, str] | None = None) -> Path:
    """Copy a finished run's small files to `into`/RECIPE/NAME.

    `given` adds to its provenance what the run itself does not know.
    """
    outcome = read(run)
    if not (run / "per_client.npz").is_file():
        raise InputError(f"{run} holds a run that is not finished; finish it with: fedgwc run --resume --out {run}")
    if outcome.made:
        raise InputError(f"{run} was made on made data (--scale smoke), which are no result; keep a run on real data")
    config = without_paths(outcome.config)
    folder = _free_folder(into / folder_name(outcome.recipe, "the recipe") / run.resolve().name, config)
    (folder / "splits").mkdir(parents=True)
    _write_json(folder / "config.json", config, indent=2)
    rows = thinned(RunFolder(run).metrics())
    write_atomically(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    _write_json(folder / PROVENANCE, without_paths(_provenance(outcome, provenance or {})), indent=2)
    for name in SMALL:
        shutil.copyfile(run / name, folder / name)
    if (run / "splits" / "tree.json").is_file():
        _write_json(folder / "splits" / "tree.json", json.loads((run / "splits" / "tree.json").read_text(encoding="utf-8")))
    for pattern in ("splits/*.npz", VERDICTS):
        _copy_what_fits(run, folder, pattern)
    return folder


def _free_folder(wanted: Path, config: Mapping[str, Any]) -> Path:
    """Return `wanted`, or `wanted`-2 and so on if it is taken.

    It is taken where a run with other settings is kept under that name.
    """
    folder, n = wanted, 1
    while folder.exists():
        if RunFolder(folder).config() == config:
            raise InputError(f"{folder} holds this run already; remove it first to keep it again")
        n += 1
        folder = wanted.with_name(f"{wanted.name}-{n}")
    return folder


def thinned(rows: Sequence[dict[str, Any]], most: int = ROWS) -> list[dict[str, Any]]:
    """Choose at most `most` evaluations evenly, with the last."""
    stride = -(-len(rows) // most)
    return [row for i, row in enumerate(rows) if (len(rows) - 1 - i) % stride == 0]


def without_paths(value: Any) -> Any:
    """Reduce every absolute path in nested tables to its last name."""
    if isinstance(value, Mapping):
        return {k: without_paths(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_paths(v) for v in value]
    return _FOLDERS.sub("", value) if isinstance(value, str) else value


def _provenance(outcome: Outcome, provenance: Mapping[str, str]) -> dict[str, Any]:
    finished = datetime.datetime.fromtimestamp((outcome.path / "metrics.jsonl").stat().st_mtime, datetime.UTC)
    defaults = {
        "command": UNKNOWN,
        "commit": UNKNOWN,
        "hardware": UNKNOWN,
        "versions": outcome.config.get("versions", {}),
        "date": finished.date().isoformat(),
    }
    return {**defaults, **provenance, **outcome.provenance, "seconds": outcome.last.get("seconds")}


def _copy_what_fits(run: Path, folder: Path, pattern: str) -> None:
    """Copy all files of a pattern or none.

    A report needs a run's matrices together.
    """
    found = sorted(run.glob(pattern))
    if size_of(folder) + sum(p.stat().st_size for p in found) <= LIMIT:
        for path in found:
            shutil.copyfile(path, folder / path.relative_to(run))


def size_of(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def _write_json(path: Path, value: Any, indent: int | None = None) -> None:
    write_atomically(path, (json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode())
