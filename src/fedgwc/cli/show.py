"""`fedgwc data show`: who has which samples, as a picture in the terminal or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedgwc.core.assignments import Assignment
from fedgwc.core.errors import InputError
from fedgwc.core.text import plural
from fedgwc.core.types import Floats, Ids
from fedgwc.data import Federation
from fedgwc.report.theme import LIGHT
from fedgwc.runs.experiment import load
from fedgwc.runs.tables import Table, show

DIGITS = (629, 269)  # half of their training and test images, so that no class runs out
CLIENTS = 10
SIZE_BAR = 16  # characters
ROWS_BESIDE = 16  # lines of a screen that are not clients
ROWS_OF_A_PIPE = 40
DRAWS = 20
BLOCKS = "▁▂▃▄▅▆▇█"


def show_command(recipe: str | None, sets: Sequence[str], partition: str | None, clients: int | None, out: Path | None) -> None:
    """Draw the federation of a recipe, or one partition of the digits."""
    if recipe is not None and partition is not None:
        raise InputError("give a recipe, or --partition for a partition of the digits; of a recipe set data.groups.0.partition")
    if clients is not None and partition is None:
        raise InputError("--clients goes with --partition NAME; of a recipe set data.groups.0.clients")
    quick = [] if partition is None else _of_digits(partition, CLIENTS if clients is None else clients)
    federation = load(recipe, [*quick, *sets]).federation()
    if out is None:
        show_federation(federation)
        return
    from fedgwc.cli.show_figure import write_figure

    write_figure(federation, out)
    print(f"wrote {out}")


def _of_digits(partition: str, clients: int) -> list[Assignment]:
    """Return settings that deal the digits to so many clients."""
    most = min(DIGITS)
    if not 1 <= clients <= most:
        raise InputError(f"--clients must be in 1..{most}, a test image for each, got {clients}")
    train, test = (n // clients for n in DIGITS)
    groups = [{"clients": clients, "partition": partition}]
    even = max(1, train // 2 * 2)  # for two shards each
    sizes: list[Assignment] = [(("data", "groups"), groups), (("data", "train_size"), even), (("data", "test_size"), test)]
    return [*sizes, (("data", "validation"), 0.0), (("data", "newcomers"), 0.0)]


def show_federation(federation: Federation) -> None:
    """Print a row per client, or for some, and a summary."""
    from rich.console import Console

    console = Console(highlight=False)
    counts, groups = federation.class_counts(), federation.known_groups
    rows = max(5, console.height - ROWS_BESIDE - len(set(groups))) if console.is_terminal else ROWS_OF_A_PIPE
    chosen = some_of_each(groups, rows)
    console.print(_clients(counts, groups, chosen, console.width))
    if len(chosen) < len(counts):
        console.print(f"{len(chosen)} of {len(counts)} clients, evenly chosen from each group", style="dim")
    n_samples = " + ".join(f"{len(rows.flat):,} {split}" for split, rows in federation.splits.items())
    new = "" if federation.newcomers is None else f" and {plural(federation.newcomers.n_clients, 'newcomer')}"
    about = f"{len(counts)} clients{new}, {n_samples} samples, {federation.n_classes} classes"
    console.print(f"\n{federation.name}: {about}\n", markup=False, soft_wrap=True)
    show(summary(federation))
    console.print(
        "\ndistance: between a client's class mix and that of all samples, mean total variation; 0 is the same mix, 1 has "
        "nothing in common\nrandom: the same of random draws of these sizes",
        soft_wrap=True,
    )
    for note in federation.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)


def some_of_each(groups: Ids, most: int) -> Ids:
    """Choose about `most` clients, evenly from each group."""
    if len(groups) <= most:
        return np.arange(len(groups))
    found = []
    for g in np.unique(groups):
        members = np.flatnonzero(groups == g)
        n = max(1, most * len(members) // len(groups))
        found.append(members[np.linspace(0, len(members) - 1, n).round().astype(np.int64)])
    return np.unique(np.concatenate(found))


def _clients(counts: Floats, groups: Ids, chosen: Ids, width: int) -> Any:
    """Return a table of clients with their sizes and class mixes."""
    from rich.table import Table as Rich
    from rich.text import Text

    shares = binned(counts[chosen] / counts[chosen].sum(1, keepdims=True), max(8, width - SIZE_BAR - 27))
    each = max(1, min(3, (width - SIZE_BAR - 27) // shares.shape[1]))
    sizes = counts.sum(1).astype(int)
    rich = Rich(box=None, pad_edge=False, header_style="bold")
    for title, justify in (("client", "right"), ("group", "right"), ("samples", "right"), ("", "left")):
        rich.add_column(title, justify="right" if justify == "right" else "left", no_wrap=True)
    rich.add_column(f"classes 0 to {counts.shape[1] - 1}", no_wrap=True)
    for client, mix in zip(chosen, shares, strict=True):
        colour = LIGHT[groups[client] % len(LIGHT)]
        bar = "█" * max(1, round(SIZE_BAR * sizes[client] / sizes.max()))
        cells = [Text(str(client)), Text(str(groups[client]), colour), Text(f"{sizes[client]:,}")]
        rich.add_row(*cells, Text(bar, colour), Text(columns(mix, float(shares.max()), each), colour))
    return rich


def binned(shares: Floats, most: int) -> Floats:
    """Add up neighbouring classes until there are `most` columns at the most.

    >>> binned(np.array([[0.25, 0.25, 0.5]]), 2).tolist()
    [[0.5, 0.5]]
    """
    together = -(-shares.shape[1] // most)
    summed: Floats = np.add.reduceat(shares, np.arange(0, shares.shape[1], together), axis=1)
    return summed


def columns(mix: Floats, top: float, each: int = 1) -> str:
    """Draw shares of `top` as columns, `each` characters apart.

    >>> columns(np.array([0.0, 0.5, 1.0]), top=1.0)
    '·▄█'
    """
    high = np.ceil(mix / top * len(BLOCKS)).astype(int)
    return "".join((("·" if h == 0 else BLOCKS[h - 1]) * max(1, each - 1)).ljust(each) for h in high)


def summary(federation: Federation) -> Table:
    """Return a table of each group's sizes and mixes."""
    counts, groups = federation.class_counts(), federation.known_groups
    overall = counts.sum(0) / counts.sum()
    apart = [distances(counts, overall), random_distances(counts.sum(1), overall)]
    parts = {f"group {g}": groups == g for g in np.unique(groups)} if len(np.unique(groups)) > 1 else {}
    head = ["", "clients", "samples, min", "median", "max", "test", "classes, median", "distance", "random"]
    rows = []
    for name, some in {**parts, "all": np.ones(len(groups), bool)}.items():
        sizes, held = counts[some].sum(1), (counts[some] > 0).sum(1)
        numbers = [sizes.min(), np.median(sizes), sizes.max(), np.median(federation.test.sizes[some]), np.median(held)]
        rows.append([name, f"{some.sum():,}", *(f"{n:,.10g}" for n in numbers), *(f"{each[some].mean():.2f}" for each in apart)])
    return Table(head, rows)


def distances(counts: Floats, mix: Floats) -> Floats:
    """Return each client's total variation [N] from a class mix [C].

    >>> distances(np.array([[2.0, 2.0], [4.0, 0.0]]), np.array([0.5, 0.5])).tolist()
    [0.0, 0.5]
    """
    apart: Floats = np.abs(counts / counts.sum(1, keepdims=True) - mix).sum(1) / 2
    return apart


def random_distances(sizes: Floats, mix: Floats) -> Floats:
    """Return the mean distances [N] of random draws of these sizes."""
    rng = np.random.default_rng(0)
    drawn = [rng.multinomial(sizes.astype(np.int64), mix).astype(np.float64) for _ in range(DRAWS)]
    mean: Floats = np.mean([distances(counts, mix) for counts in drawn], axis=0)
    return mean
