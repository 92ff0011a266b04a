"""A page as one self-contained HTML file.

It needs no network, no fonts, no scripts but its own.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from fedgwc.report.content import Page
from fedgwc.report.render import inline
from fedgwc.report.theme import DARK, LIGHT
from fedgwc.runs.delayed_progress import map_with_progress
from fedgwc.runs.progress import SILENT, Watcher


def html(page: Page, progress: Watcher = SILENT) -> str:
    """Render the page as HTML.

    Everything that came from files is escaped; only our own figures, styles and script are put in as they are.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    pictures = zip(page.pictures, map_with_progress(inline, page.pictures, "figures drawn", progress), strict=True)
    script = _file("sort.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.from_string(_file("page.html.j2")).render(
        page=page,
        pictures={p.name: Markup(drawn) for p, drawn in pictures},  # noqa: S704  # svg that matplotlib has escaped
        style=Markup(_file("style.css")),  # noqa: S704
        palette=list(enumerate(zip(LIGHT, DARK, strict=True))),
        script=Markup(script),  # noqa: S704
        script_hash=digest,
    )


def _file(name: str) -> str:
    return (resources.files("fedgwc.report") / name).read_text(encoding="utf-8")
