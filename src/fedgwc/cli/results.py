"""`fedgwc results`: keep a run's small files, and make the page of all."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedgwc.io.atomic import write_atomically
from fedgwc.reproduce.keep import keep, size_of
from fedgwc.reproduce.lines import lines_of
from fedgwc.reproduce.outcome import read_all
from fedgwc.reproduce.page import needs, page, pictures_of
from fedgwc.reproduce.paper import paper


def keep_command(runs: Sequence[Path], into: Path, provenance: Mapping[str, str]) -> None:
    for run in runs:
        kept = keep(run, into, provenance)
        print(f"Kept: {kept} ({size_of(kept) / 1000:.0f} kB)")


def page_command(results: Path, out: Path, figures: bool) -> None:
    folder = out.parent / "figures"
    if figures:
        _draw(results, folder)
    text = page(results, folder)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.encode())
    print(f"Written: {out}")


def _draw(results: Path, folder: Path) -> None:
    """Draw the figures that the kept files suffice for.

    Figures that need a run's trace are drawn by `fedgwc reproduce`.
    """
    from fedgwc.reproduce.pictures import draw

    outcomes = read_all(results)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for name, entry in paper().items():
            drawn = draw(name, entry, lines_of(entry, outcomes, needs), Path(place)) if entry.pictures else []
            pictures = [p for p in drawn if p.suffix == ".png"]
            for path in pictures:
                _shrunk(path, folder / path.name)
                print(f"Drawn: {folder / path.name}")
            for old in pictures_of(name, folder) if drawn else ():
                if old.name not in {p.name for p in pictures}:
                    old.unlink()  # of another run, which had other clusters to show


def _shrunk(picture: Path, to: Path) -> None:
    """Reduce a picture's colours to those that a drawing needs.

    A third of the bytes: these files are kept for good.
    """
    from PIL import Image  # comes with matplotlib

    with Image.open(picture) as image:
        image.convert("RGB").quantize(96, dither=Image.Dither.NONE).save(to, optimize=True)
