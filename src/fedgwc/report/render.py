"""Figures as text for the page and as files.

The same bytes for the same data, every time.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedgwc.report.theme import ROLES, house_style
from fedgwc.runs.delayed_progress import map_with_progress
from fedgwc.runs.progress import SILENT, Watcher

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_ID = re.compile(r'(\bid="|url\(#|href="#)')


@dataclass(frozen=True)
class Picture:
    """A figure with its description."""

    name: str  # of its file, and the beginning of its ids in the page
    title: str
    alt: str  # what is seen, with numbers, for those who do not see it
    caption: str
    figure: Figure


def svg(figure: Figure, fonts: str = "path") -> str:
    """Render the figure alone, without date, creator or comments.

    `fonts="none"` leaves text to the reader's fonts.
    """
    buffer = io.StringIO()
    with house_style(**{"svg.fonttype": fonts}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.S)
    return re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)


def inline(picture: Picture) -> str:
    """Render the figure for the page.

    Colours by role, ids of its own, no size of its own, and the alt text where readers look for it.
    """
    from markupsafe import escape

    text = svg(picture.figure, "none")
    text = text[text.index("<svg") :]
    text = _COLOUR.sub(lambda m: f"var(--{ROLES[m[0]]})" if m[0] in ROLES else m[0], text)
    text = _ID.sub(rf"\g<1>{picture.name}-", text)
    text = text.replace("xlink:href", "href")
    text = re.sub(r'<g id="[^"]*-(?:figure|axes|patch|text|line2d|matplotlib\.axis|xtick|ytick)_\d+">', "<g>", text)
    text = re.sub(r"\n\s*", "\n", text)
    box = re.search(r'viewBox="[^"]*"', text)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box[0] if box else ""} role="img" aria-label="{escape(picture.alt)}">'
    return head + text[text.index(">") + 1 :]


def write_files(pictures: list[Picture], folder: Path, progress: Watcher = SILENT) -> list[Path]:
    """Write each picture as NAME.svg and NAME.png, on white."""
    folder.mkdir(parents=True, exist_ok=True)
    written = map_with_progress(lambda picture: _write(picture, folder), pictures, "figures written", progress)
    return [path for pair in written for path in pair]


def _write(picture: Picture, folder: Path) -> tuple[Path, Path]:
    drawn, pixels = folder / f"{picture.name}.svg", folder / f"{picture.name}.png"
    drawn.write_text(svg(picture.figure), encoding="utf-8")
    with house_style():
        picture.figure.savefig(pixels, dpi=200, facecolor="white", metadata={"Software": None})
    return drawn, pixels
