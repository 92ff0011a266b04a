"""`fedgwc deploy init`: the folder of a federation."""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from fedgwc.core.errors import InputError
from fedgwc.core.sampling import SMALLEST_COHORT
from fedgwc.flower.deploy import network, secrets
from fedgwc.flower.deploy.recipe_check import check_recipe
from fedgwc.flower.options import Options
from fedgwc.flower.preflight import OWN_DATA
from fedgwc.runs.experiment import Experiment, experiment, recipes
from fedgwc.runs.formats import current

CLIENTS_PLACEHOLDER = "FIRST-LAST"  # an operator replaces it where only the machine with the data knows how many there are
OWN_CODE = "app/fedgwc_app/own"  # code of one's own that the recipe names, which the app takes to every node
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Plan:
    """The operator's decisions."""

    recipe: str
    host: str = "127.0.0.1"  # where nodes find the server
    port: int = 8000
    bind: str = "127.0.0.1"  # who reaches the server's port is an operator, so nobody else's machine does unless asked for
    nodes: int = 3
    own_data: bool = False  # nodes bring their data, instead of serving clients of the recipe's federation
    private_losses: bool = False  # losses stay with the clients, and nodes refuse to tell them
    node_port: int = network.NODE_PORT  # where nodes find the proxy, if there is one

    def __post_init__(self) -> None:
        if not HOST.fullmatch(self.host) and not _is_address(self.host):
            raise InputError(f"--host must be a name or an address that nodes can reach, got {self.host!r}")
        if not all(1 <= port <= 65535 for port in (self.port, self.node_port)) or not 1 <= self.nodes <= 1000:
            given = f"{self.port}, {self.node_port} and {self.nodes}"
            raise InputError(f"--port and --node-port must be in 1..65535 and --nodes in 1..1000, got {given}")
        if not _is_address(self.bind):
            raise InputError(f"--bind must be one of this machine's addresses, got {self.bind!r}")
        if self.proxied and self.port == self.node_port:
            raise InputError(
                f"--port and --node-port must differ, got {self.port} twice: the server has the one, its proxy the other"
            )

    @property
    def proxied(self) -> bool:
        """Tell whether nodes connect through a proxy."""
        return network.is_loopback(self.bind) and not network.is_loopback(self.host)

    @property
    def nodes_at(self) -> tuple[str, int]:
        """Return host and port to which nodes connect."""
        return self.host, self.node_port if self.proxied else self.port

    @property
    def operator_at(self) -> tuple[str, int]:
        """Return host and port to which the operator's commands connect."""
        return self.bind if network.is_loopback(self.bind) else self.host, self.port


def _is_address(text: str) -> bool:
    try:
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def read_plan(folder: Path) -> Plan:
    """Read the plan of the federation in a folder."""
    try:
        return Plan(**json.loads((folder / "deploy.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{folder} was not written by fedgwc deploy init: {error}") from None


def node_folders(folder: Path) -> list[Path]:
    """List nodes' folders that are here; others have moved to their machines."""
    return sorted(p for p in folder.glob("nodes/*") if p.is_dir())


def certificate_folders(folder: Path) -> list[Path]:
    """List folders with a copy of the authority's certificate."""
    return [folder / "superlink", *node_folders(folder)]


def init(folder: Path, plan: Plan, own: Iterable[str] = ()) -> list[str]:
    """Write a federation's folder; return each node's configuration.

    `own` are files of one's own code, which go with the app.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder; choose a new one, since keys are never overwritten")
    code = [_own_file(name) for name in own]
    text = recipe_text(plan.recipe)
    n_clients = check_recipe(parse_recipe(text), options(plan), plan.own_data)  # or it says why not, before there is anything
    configs = node_configs(plan, n_clients)
    for name in ("app/fedgwc_app", "ca", "superlink", "flwr", *(f"nodes/node-{i}" for i in range(1, plan.nodes + 1))):
        (folder / name).mkdir(parents=True)
    for private in (folder / "ca", folder / "superlink", folder / "flwr", *(folder / "nodes").iterdir()):
        private.chmod(0o700)
    authority = secrets.make_authority(folder / "ca")
    secrets.make_server(folder / "superlink", certificate_names(plan), authority)
    for i, config in enumerate(configs, 1):
        _node(folder, i, config, plan)
    (folder / "superlink" / "ca.crt").write_bytes((folder / "ca" / "ca.crt").read_bytes())
    (folder / "app" / "fedgwc_app" / "recipe.toml").write_text(text, encoding="utf-8")
    for path in code:
        (folder / OWN_CODE / path.name).parent.mkdir(exist_ok=True)
        (folder / OWN_CODE / path.name).write_bytes(path.read_bytes())
    # A node has a client at least: all are to be there before most of them decide what data look like.
    everybody = max(SMALLEST_COHORT, n_clients or plan.nodes)
    known = {**_addresses(plan), "min_clients": everybody, "min_replies": options(plan).min_replies}
    known["max_clients"] = max(options(plan).max_clients, everybody)
    known |= {"ca": _toml(folder.resolve() / "ca" / "ca.crt"), "out": _toml(folder.resolve() / "run")}
    known["private_losses"] = json.dumps(plan.private_losses)
    for template, target in (FILES | PROXY if plan.proxied else FILES).items():
        _fill(template, folder / target, known)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")  # it holds keys, and may have been made inside of a repository
    (folder / "deploy.json").write_text(json.dumps(asdict(plan), indent=2) + "\n", encoding="utf-8")
    return configs


def _own_file(name: str) -> Path:
    """Accept a file of one's own code; refuse installed modules."""
    if not name.endswith(".py"):
        raise InputError(f"--use {name}: the app carries files to the nodes, and no installed modules; give a FILE.py")
    return Path(name)


def options(plan: Plan) -> Options:
    """Return the server's options under a plan."""
    return Options(private_losses=plan.private_losses)


FILES = {
    "README.md": "README.md",
    "pyproject.toml": "app/pyproject.toml",
    "init.py": "app/fedgwc_app/__init__.py",
    "server.py": "app/fedgwc_app/server.py",
    "client.py": "app/fedgwc_app/client.py",
    "flwr.toml": "flwr/config.toml",
    "superlink.sh": "superlink/start.sh",
}
PROXY = {"nginx.conf": "superlink/nginx.conf", "proxy.sh": "superlink/proxy.sh"}


def certificate_names(plan: Plan) -> list[str]:
    """List the server's names, for nodes, operator and the server app."""
    bind = ipaddress.ip_address(plan.bind)
    own = bind if not bind.is_unspecified else "::1" if bind.version == 6 else "127.0.0.1"
    return list(dict.fromkeys([plan.host, "localhost", "127.0.0.1", str(own)]))


def _addresses(plan: Plan) -> dict[str, Any]:
    """Return the plan and its addresses, by the names that templates use."""
    known = {**asdict(plan), "nodes_at": network.address(*plan.nodes_at), "operator_at": network.address(*plan.operator_at)}
    known["listen"] = f"[::]:{plan.node_port}" if ":" in plan.host else plan.node_port
    text = network.PROXIED if plan.proxied else network.LOCAL if network.is_loopback(plan.bind) else network.OPEN
    known["network"] = Template(text).substitute(known)
    known["start_server"] = "`superlink/start.sh`" + (
        ", and beside it `superlink/proxy.sh` (needs nginx)" if plan.proxied else ""
    )
    return known


def _fill(template: str, target: Path, known: dict[str, Any]) -> None:
    text = (resources.files("fedgwc.flower.deploy") / "templates" / f"{template}.txt").read_text(encoding="utf-8")
    target.write_text(Template(text).substitute(known), encoding="utf-8")
    if target.suffix == ".sh":
        target.chmod(0o755)


def _toml(path: Path) -> str:
    """Write a path as a string of TOML; JSON's escapes are TOML's."""
    return json.dumps(str(path), ensure_ascii=False)


def _node(folder: Path, i: int, config: str, plan: Plan) -> None:
    home = folder / "nodes" / f"node-{i}"
    secrets.make_node(home)
    (home / "ca.crt").write_bytes((folder / "ca" / "ca.crt").read_bytes())
    (home / "node-config").write_text(config + "\n", encoding="utf-8")
    # Each node's own port differs, so that several may run on one machine.
    _fill("supernode.sh", home / "start.sh", {**_addresses(plan), "local_port": 9093 + i})


def recipe_text(recipe: str) -> str:
    """Read a recipe's file and check it."""
    path = recipes().get(recipe, Path(recipe))
    if not path.is_file():
        raise InputError(f"no recipe {recipe!r}: it is neither a file nor one of {', '.join(sorted(recipes()))}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a TOML recipe: {error}") from None
    parse_recipe(text)
    return text


def parse_recipe(text: str) -> Experiment:
    """Build the experiment that a recipe's text describes."""
    try:
        return experiment(current(tomllib.loads(text)), "recipe")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"the recipe is not TOML: {error}") from None


def clients_per_node(plan: Plan, n_clients: int) -> list[list[int]]:
    """Deal the recipe's clients to nodes, in even parts."""
    if n_clients < plan.nodes:
        raise InputError(f"the recipe has {n_clients} clients, too few for {plan.nodes} nodes; lower --nodes")
    return [[int(k) for k in part] for part in np.array_split(np.arange(n_clients), plan.nodes)]


def node_configs(plan: Plan, n_clients: int | None) -> list[str]:
    """Write each node's line of configuration.

    Where the number of clients is unknown, an operator fills in whom each serves.
    """
    consents = "share-class-counts=false" + (" private-losses=true" if plan.private_losses else "")
    if plan.own_data:
        return [f'name="node-{i}" data="{OWN_DATA}" {consents}' for i in range(1, plan.nodes + 1)]
    if n_clients is None:
        return [f'clients="{CLIENTS_PLACEHOLDER}" {consents}'] * plan.nodes
    return [f'clients="{part[0]}-{part[-1]}" {consents}' for part in clients_per_node(plan, n_clients)]
