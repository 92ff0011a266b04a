"""`fedgwc deploy check`: mistakes in a federation's folder, found before anything starts."""

from __future__ import annotations

import importlib.metadata
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature

from fedgwc.core.errors import InputError
from fedgwc.flower.checks import MOST_NAMES
from fedgwc.flower.client import parse_clients
from fedgwc.flower.deploy.certificates import check_nodes, check_server
from fedgwc.flower.deploy.finding import Finding
from fedgwc.flower.deploy.reach import connections, reach
from fedgwc.flower.deploy.recipe_check import check_recipe
from fedgwc.flower.deploy.write import CLIENTS_PLACEHOLDER, OWN_CODE, Plan, node_folders, parse_recipe, read_plan
from fedgwc.flower.options import Options
from fedgwc.flower.private_server import private_losses_for
from fedgwc.runs.experiment import Experiment
from fedgwc.runs.plugins import plugin_files, use

BUNDLE = 10_000_000  # bytes that Flower sends at most
PATHS = (("data", "path"), ("data", "root"), ("data", "partition_file"), ("model", "weights"))
OLDEST, NEWER = (1, 40), (1, 42)  # nodes of 1.39 speak gRPC, at a port of their own


def check(folder: Path) -> list[Finding]:
    """Check all that can be checked without starting anything."""
    plan = read_plan(folder)
    checks: list[Callable[[], Iterator[Finding]]] = [
        _flower,
        lambda: _place(folder),
        lambda: _app(folder, plan),
        lambda: _modes(folder),
        lambda: check_server(folder, plan),
        lambda: check_nodes(folder),
        lambda: reach(plan),
        lambda: connections(folder, plan),
    ]
    findings: list[Finding] = []
    for run_check in checks:
        try:
            findings += run_check()
        except (OSError, ValueError, TypeError, KeyError, InvalidSignature) as error:
            findings.append(Finding("a file", False, f"{error}" or type(error).__name__))
    return findings


def _flower() -> Iterator[Finding]:
    version = importlib.metadata.version("flwr")
    fits = OLDEST <= tuple(int(n) for n in version.split(".")[:2]) < NEWER
    yield Finding("Flower", fits, version if fits else f"{version} is installed; this needs 1.40 or 1.41")


def _place(folder: Path) -> Iterator[Finding]:
    """Check that the folder was not moved or copied.

    A copy would write into the original's run.
    """
    here = folder.resolve()
    trusted = Path(str(_toml(folder / "flwr" / "config.toml")["superlink"]["tls"].get("root-certificates", "")))
    if trusted != here / "ca" / "ca.crt":
        todo = f"if the folder was moved or copied, make that {here / 'ca' / 'ca.crt'} in flwr/config.toml"
        yield Finding("place", trusted.is_file(), f"the operator's commands use {trusted}; {todo}", warning=True)
    out, written = Path(str(_config(folder).get("out", ""))), trusted.parent.parent
    if written != here and out.is_relative_to(written):
        todo = f"if this is a federation of its own, or runs on this machine, change out in app/pyproject.toml to {here / 'run'}"
        yield Finding("out", True, f"{out} is in the folder's old place; {todo}", warning=True)


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _config(folder: Path) -> dict[str, Any]:
    """Read the app's run-config."""
    found: dict[str, Any] = _toml(folder / "app" / "pyproject.toml")["tool"]["flwr"]["app"]["config"]
    return found


def _elsewhere(own: list[Path]) -> str:
    """Find code in use that differs from the nodes' copy."""
    by_name = {path.name: path.read_bytes() for path in own}
    files = [path for path in map(Path, plugin_files()) if path.name in by_name and path.is_file()]
    return next((str(path) for path in files if path.read_bytes() != by_name[path.name]), "")


def _app(folder: Path, plan: Plan) -> Iterator[Finding]:
    own = sorted((folder / OWN_CODE).glob("*.py"))
    if other := _elsewhere(own):
        todo = f"nodes get the copy in {OWN_CODE}, so look without the other: unset FEDGWC_USE and leave out --use"
        yield Finding("code of your own", False, f"{other} differs from its copy; {todo}")
        return
    use(str(path.resolve()) for path in own)
    job = parse_recipe((folder / "app" / "fedgwc_app" / "recipe.toml").read_text(encoding="utf-8"))
    options, n_clients = Options.read(_config(folder)), None
    yield from _private(folder, job.algorithm, options)
    try:
        n_clients = check_recipe(job, replace(options, private_losses=False), plan.own_data)  # private losses were checked above
        yield Finding("recipe", True, f"{job.algorithm_name}, {job.rounds} rounds")
    except InputError as error:
        yield Finding("recipe", False, str(error))
    if relative := _relative(job, plan):
        detail = f"{relative} is relative: every machine looks below the folder in which its app runs; better give the whole path"
        yield Finding("paths", True, detail, warning=True)
    size = sum(p.stat().st_size for p in (folder / "app").rglob("*") if p.is_file())
    yield Finding("app", size < BUNDLE, f"{size:,} bytes travel to every node" + ("" if size < BUNDLE else ", too many"))
    if not plan.own_data:
        yield _served(folder, plan, n_clients)


def _relative(job: Experiment, plan: Plan) -> str:
    """Find a path of the recipe that leads elsewhere on other machines."""
    paths = [(name, key, job.tables[name].get(key)) for name, key in PATHS if not (plan.own_data and key == "path")]
    return next((f"{n}.{k} = {v!r}" for n, k, v in paths if isinstance(v, str) and not Path(v).expanduser().is_absolute()), "")


def _served(folder: Path, plan: Plan, n_clients: int | None) -> Finding:
    """Check that every client is served by one node."""
    configs = [_node_config(home) for home in node_folders(folder)]
    if any(CLIENTS_PLACEHOLDER in config for config in configs):
        todo = f'write whom each node serves in place of {CLIENTS_PLACEHOLDER} into its node-config, as in clients="0-3"'
        return Finding("clients", False, f"how many there are is known only where the data are; {todo}")
    served = [k for config in configs for k in _clients(config, n_clients or MOST_NAMES)]
    n = n_clients or max(served, default=-1) + 1
    twice = sorted(k for k, times in Counter(served).items() if times > 1)
    missing = sorted(set(range(n)) - set(served))
    detail = f"{n} clients on {plan.nodes} nodes"
    detail = f"served twice: {twice[:5]}" if twice else f"served by nobody: {missing[:5]}" if missing else detail
    return Finding("clients", not twice and not missing, detail)


def _private(folder: Path, algorithm: Any, options: Options) -> Iterator[Finding]:
    """Check that nodes and algorithm agree on private losses."""
    if not options.private_losses:
        insisting = [home.name for home in node_folders(folder) if "private-losses=true" in _node_config(home)]
        if insisting:
            detail = f"{insisting[0]} insists on it; set private-losses = true in app/pyproject.toml"
            yield Finding("private losses", False, detail)
        return
    try:
        private_losses_for(algorithm)
        yield Finding("private losses", True, "up to three exchanges per round")
    except InputError as error:
        yield Finding("private losses", False, str(error))


def _node_config(home: Path) -> str:
    return (home / "node-config").read_text(encoding="utf-8")


def _clients(config: str, n_clients: int) -> list[int]:
    """Parse the clients that a node's configuration names."""
    values = dict(re.findall(r'([\w-]+)=("[^"]*"|\S+)', config))
    return parse_clients(values["clients"].strip('"') if "clients" in values else None, n_clients)


def _modes(folder: Path) -> Iterator[Finding]:
    for path in [folder / "ca" / "ca.key", folder / "superlink" / "server.key", *(h / "key" for h in node_folders(folder))]:
        if not path.exists():  # a node's folder may have moved to its machine, and the authority's key into a safe
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        name = str(path.relative_to(folder))
        yield Finding(f"mode of {name}", mode == 0o600, f"{mode:o}" if mode == 0o600 else f"{mode:o}; do: chmod 600 {path}")
        mode = stat.S_IMODE(path.parent.stat().st_mode)
        if mode & 0o077:
            name = str(path.parent.relative_to(folder))
            yield Finding(f"mode of {name}", False, f"{mode:o}, so others may look into it; do: chmod 700 {path.parent}")
