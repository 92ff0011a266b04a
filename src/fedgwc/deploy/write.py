"""`fedgwc deploy init`: the folder of a federation."""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from fedgwc.deploy import secrets
from fedgwc.errors import InputError
from fedgwc.experiment import experiment, recipes
from fedgwc.flower.private import privacy_of

HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Plan:
    """What an operator decides."""

    recipe: str
    host: str = "127.0.0.1"  # where nodes find the server
    port: int = 8000
    bind: str = "0.0.0.0"  # noqa: S104 - a server is there to be reached; TLS and node keys say by whom
    nodes: int = 3
    own_data: bool = False  # nodes bring their data, instead of serving clients of the recipe's federation
    private_losses: bool = False  # losses stay with the clients, and nodes refuse to tell them

    def __post_init__(self) -> None:
        if not HOST.fullmatch(self.host):
            raise InputError(f"--host must be a name or an address that nodes can reach, got {self.host!r}")
        if not 1 <= self.port <= 65535 or not 1 <= self.nodes <= 1000:
            raise InputError(f"--port must be in 1..65535 and --nodes in 1..1000, got {self.port} and {self.nodes}")
        try:
            ipaddress.ip_address(self.bind)
        except ValueError:
            raise InputError(f"--bind must be one of this machine's addresses, got {self.bind!r}") from None


def init(folder: Path, plan: Plan) -> list[str]:
    """Write it all into a new or empty folder; returns each node's configuration."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder; choose a new one, since keys are never overwritten")
    text = recipe_text(plan.recipe)
    if plan.private_losses:
        privacy_of(parsed(text).algorithm)  # refuses what does not go together
    configs = node_configs(plan, text)
    for name in ("app/fedgwc_app", "ca", "superlink", "flwr", *(f"nodes/node-{i}" for i in range(1, plan.nodes + 1))):
        (folder / name).mkdir(parents=True)
    for private in (folder / "ca", folder / "superlink", folder / "flwr", *(folder / "nodes").iterdir()):
        private.chmod(0o700)
    authority = secrets.make_authority(folder / "ca")
    hosts = list(dict.fromkeys([plan.host, "localhost", "127.0.0.1"]))
    secrets.make_server(folder / "superlink", hosts, authority)
    for i, config in enumerate(configs, 1):
        _node(folder, i, config, plan)
    (folder / "superlink" / "ca.crt").write_bytes((folder / "ca" / "ca.crt").read_bytes())
    (folder / "app" / "fedgwc_app" / "recipe.toml").write_text(text, encoding="utf-8")
    everybody = 3 if plan.own_data else sum(len(clients) for clients in dealt(plan, text))
    known = {**asdict(plan), "folder": folder.resolve(), "min_clients": max(3, everybody), "min_replies": 3}
    known["private_losses"] = json.dumps(plan.private_losses)
    for template, target in FILES.items():
        _fill(template, folder / target, known)
    (folder / "deploy.json").write_text(json.dumps(asdict(plan), indent=2) + "\n", encoding="utf-8")
    return configs


FILES = {
    "README.md": "README.md",
    "pyproject.toml": "app/pyproject.toml",
    "init.py": "app/fedgwc_app/__init__.py",
    "server.py": "app/fedgwc_app/server.py",
    "client.py": "app/fedgwc_app/client.py",
    "flwr.toml": "flwr/config.toml",
    "superlink.sh": "superlink/start.sh",
}


def _fill(template: str, target: Path, known: dict[str, Any]) -> None:
    text = (resources.files("fedgwc") / "deploy" / "templates" / f"{template}.txt").read_text(encoding="utf-8")
    target.write_text(Template(text).substitute(known), encoding="utf-8")
    if target.suffix == ".sh":
        target.chmod(0o755)


def _node(folder: Path, i: int, config: str, plan: Plan) -> None:
    home = folder / "nodes" / f"node-{i}"
    secrets.make_node(home)
    (home / "ca.crt").write_bytes((folder / "ca" / "ca.crt").read_bytes())
    (home / "node-config").write_text(config + "\n", encoding="utf-8")
    # Each node's own port differs, so that several may run on one machine.
    _fill("supernode.sh", home / "start.sh", {**asdict(plan), "local_port": 9093 + i})


def recipe_text(recipe: str) -> str:
    """The recipe's file as it is, checked."""
    path = recipes().get(recipe, Path(recipe))
    if not path.is_file():
        raise InputError(f"no recipe {recipe!r}: it is neither a file nor one of {', '.join(sorted(recipes()))}")
    text = path.read_text(encoding="utf-8")
    parsed(text)
    return text


def parsed(text: str) -> Any:
    """The experiment that a recipe's text describes."""
    try:
        return experiment(tomllib.loads(text), "recipe")
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the recipe is not TOML: {error}") from None


def dealt(plan: Plan, text: str) -> list[list[int]]:
    """The recipe's clients, in even parts, one per node."""
    n_clients = parsed(text).federation().n_clients
    if n_clients < plan.nodes:
        raise InputError(f"the recipe has {n_clients} clients, too few for {plan.nodes} nodes; lower --nodes")
    return [[int(k) for k in part] for part in np.array_split(np.arange(n_clients), plan.nodes)]


def node_configs(plan: Plan, text: str) -> list[str]:
    """Each node's own line of configuration."""
    consents = "share-class-counts=false" + (" private-losses=true" if plan.private_losses else "")
    if plan.own_data:
        return [f'name="node-{i}" data="/path/to/data.npz" {consents}' for i in range(1, plan.nodes + 1)]
    return [f'clients="{part[0]}-{part[-1]}" {consents}' for part in dealt(plan, text)]
