"""`fedgwc deploy check`: what is wrong with a federation's folder, before anything starts."""

from __future__ import annotations

import importlib.metadata
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature

from fedgwc.deploy.certificates import of_nodes, of_server
from fedgwc.deploy.finding import Finding
from fedgwc.deploy.reach import connections, reach
from fedgwc.deploy.write import Plan, homes, parsed, planned
from fedgwc.errors import InputError
from fedgwc.flower.private import privacy_of

BUNDLE = 10_000_000  # bytes that Flower sends at most
OLDEST, NEWER = (1, 40), (1, 42)  # nodes of 1.39 speak gRPC, at a port of their own


def check(folder: Path) -> list[Finding]:
    """Everything that can be told without starting anything."""
    plan = planned(folder)
    looks: list[Callable[[], Iterator[Finding]]] = [
        _flower,
        lambda: _app(folder, plan),
        lambda: _modes(folder),
        lambda: of_server(folder, plan),
        lambda: of_nodes(folder),
        lambda: reach(plan),
        lambda: connections(folder, plan),
    ]
    findings: list[Finding] = []
    for look in looks:
        try:
            findings += look()
        except (OSError, ValueError, TypeError, KeyError, InvalidSignature) as error:
            findings.append(Finding("a file", False, f"{error}" or type(error).__name__))
    return findings


def _flower() -> Iterator[Finding]:
    version = importlib.metadata.version("flwr")
    fits = OLDEST <= tuple(int(n) for n in version.split(".")[:2]) < NEWER
    yield Finding("Flower", fits, version if fits else f"{version} is installed; this needs 1.40 or 1.41")


def _app(folder: Path, plan: Plan) -> Iterator[Finding]:
    job = parsed((folder / "app" / "fedgwc_app" / "recipe.toml").read_text(encoding="utf-8"))
    yield Finding("recipe", True, f"{job.algorithm_name}, {job.rounds} rounds")
    yield from _private(folder, job.algorithm)
    size = sum(p.stat().st_size for p in (folder / "app").rglob("*") if p.is_file())
    yield Finding("app", size < BUNDLE, f"{size:,} bytes travel to every node" + ("" if size < BUNDLE else ", too many"))
    if not plan.own_data:
        n = job.federation().n_clients
        served = [k for part in _configs(folder) for k in _clients(part, n)]
        twice = sorted({k for k in served if served.count(k) > 1})
        missing = sorted(set(range(n)) - set(served))
        detail = f"{n} clients on {plan.nodes} nodes"
        detail = f"served twice: {twice[:5]}" if twice else f"served by nobody: {missing[:5]}" if missing else detail
        yield Finding("clients", not twice and not missing, detail)


def _private(folder: Path, algorithm: Any) -> Iterator[Finding]:
    """Losses that some nodes refuse to tell, or that the algorithm cannot do without, would stop the run."""
    text = (folder / "app" / "pyproject.toml").read_text(encoding="utf-8")
    config = tomllib.loads(text)["tool"]["flwr"]["app"]["config"]
    if not config.get("private-losses"):
        insist = [
            home.name for home in homes(folder) if "private-losses=true" in (home / "node-config").read_text(encoding="utf-8")
        ]
        if insist:
            detail = f"{insist[0]} insists on it; set private-losses = true in app/pyproject.toml"
            yield Finding("private losses", False, detail)
        return
    try:
        privacy_of(algorithm)
        yield Finding("private losses", True, "up to three exchanges per round")
    except InputError as error:
        yield Finding("private losses", False, str(error))


def _configs(folder: Path) -> list[str]:
    return [(home / "node-config").read_text(encoding="utf-8") for home in homes(folder)]


def _clients(config: str, n_clients: int) -> list[int]:
    """Whom one node's line of configuration names."""
    from fedgwc.flower.client import clients_in

    values = dict(re.findall(r'([\w-]+)=("[^"]*"|\S+)', config))
    return clients_in(values["clients"].strip('"') if "clients" in values else None, n_clients)


def _modes(folder: Path) -> Iterator[Finding]:
    for path in [folder / "ca" / "ca.key", folder / "superlink" / "server.key", *(h / "key" for h in homes(folder))]:
        if not path.exists():  # a node's folder may have moved to its machine, and the authority's key into a safe
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        name = str(path.relative_to(folder))
        yield Finding(f"mode of {name}", mode == 0o600, f"{mode:o}" if mode == 0o600 else f"{mode:o}; do: chmod 600 {path}")
        mode = stat.S_IMODE(path.parent.stat().st_mode)
        if mode & 0o077:
            name = str(path.parent.relative_to(folder))
            yield Finding(f"mode of {name}", False, f"{mode:o}, so others may look into it; do: chmod 700 {path.parent}")
