"""Results as pandas frames, for whoever has pandas."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgwc.comparison.outcomes import find_runs
from fedgwc.core.assignments import flatten
from fedgwc.core.errors import InputError
from fedgwc.runs.folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("pandas", "pyarrow")
LEFT_OUT = ("format", "about")


def has_frames() -> bool:
    """Tell whether pandas and its Parquet engine are installed."""
    return all(find_spec(name) is not None for name in NEEDED)


def results(*folders: str | os.PathLike[str]) -> pd.DataFrame:
    """Read runs as a tidy frame, one row per run and evaluation.

    Each folder is a run or holds runs, as `fedgwc compare` makes. Columns are `run`, the settings by their full names
    (`algorithm.name`, `local.lr`), and the keys of metrics.jsonl. Needs pandas: the extra `frames`.
    """
    try:
        import pandas as pd
    except ImportError:
        raise InputError("fedgwc.results needs pandas: install fedgwc with its extra `frames`") from None
    return pd.DataFrame(list(_records([Path(folder) for folder in folders])))


def _records(folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    if not folders:
        raise InputError("fedgwc.results needs the folder of a run, or one that holds runs")
    for path in find_runs(folders):
        folder = RunFolder(path)
        settings = {k: v for k, v in flatten(folder.config()["experiment"]).items() if k not in LEFT_OUT}
        about = {
            "run": path.resolve().name,
            **{k: v if isinstance(v, int | float | str) else str(v) for k, v in settings.items()},
        }
        yield from ({**about, **row} for row in folder.metrics())


def parquet_bytes(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Pack records as a Parquet file."""
    import pandas as pd

    frame = pd.DataFrame([dict(record) for record in records])
    mixed = [name for name in frame.columns if frame[name].dtype == object]
    frame[mixed] = frame[mixed].astype(str)  # a column has one type, and swept values may have several
    out = io.BytesIO()
    frame.to_parquet(out, index=False)
    return out.getvalue()
