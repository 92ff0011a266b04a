"""`fedgwc deploy check`: what is wrong with a federation's folder, before anything starts."""

from __future__ import annotations

import importlib.metadata
import ipaddress
import re
import socket
import ssl
import stat
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from fedgwc.deploy.network import exposed, is_loopback, joined
from fedgwc.deploy.write import Plan, parsed, planned
from fedgwc.errors import InputError
from fedgwc.flower.private import privacy_of

BUNDLE = 10_000_000  # bytes that Flower sends at most
PATIENCE = 3  # seconds for the server to answer
OLDEST, NEWER = (1, 40), (1, 42)  # nodes of 1.39 speak gRPC, at a port of their own


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    detail: str = ""
    warning: bool = False  # allowed, and still to be read

    @property
    def verdict(self) -> str:
        return "WARNING" if self.ok and self.warning else "ok" if self.ok else "WRONG"


def check(folder: Path) -> list[Finding]:
    """Everything that can be told without starting anything."""
    plan = planned(folder)
    looks: list[Callable[[], Iterator[Finding]]] = [
        _flower,
        lambda: _app(folder, plan),
        lambda: _modes(folder),
        lambda: _server(folder, plan),
        lambda: _nodes(folder),
        lambda: _reach(plan),
        lambda: _connection(folder, plan),
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
            home.name for home in _homes(folder) if "private-losses=true" in (home / "node-config").read_text(encoding="utf-8")
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
    return [(home / "node-config").read_text(encoding="utf-8") for home in _homes(folder)]


def _homes(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / "nodes").iterdir() if p.is_dir())


def _clients(config: str, n_clients: int) -> list[int]:
    """Whom one node's line of configuration names."""
    from fedgwc.flower.client import clients_in

    values = dict(re.findall(r'([\w-]+)=("[^"]*"|\S+)', config))
    return clients_in(values["clients"].strip('"') if "clients" in values else None, n_clients)


def _modes(folder: Path) -> Iterator[Finding]:
    for path in [folder / "ca" / "ca.key", folder / "superlink" / "server.key", *(h / "key" for h in _homes(folder))]:
        if not path.exists():  # a node's folder may have moved to its machine, and the authority's key into a safe
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        name = str(path.relative_to(folder))
        yield Finding(f"mode of {name}", mode == 0o600, f"{mode:o}" if mode == 0o600 else f"{mode:o}; do: chmod 600 {path}")
        mode = stat.S_IMODE(path.parent.stat().st_mode)
        if mode & 0o077:
            name = str(path.parent.relative_to(folder))
            yield Finding(f"mode of {name}", False, f"{mode:o}, so others may look into it; do: chmod 700 {path.parent}")


def _server(folder: Path, plan: Plan) -> Iterator[Finding]:
    authority = x509.load_pem_x509_certificate((folder / "ca" / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((folder / "superlink" / "server.crt").read_bytes())
    key = serialization.load_pem_private_key((folder / "superlink" / "server.key").read_bytes(), None)
    try:
        server.verify_directly_issued_by(authority)
        signed = True
    except (InvalidSignature, ValueError, TypeError):
        signed = False
    yield Finding("server.crt", signed, "signed by ca.crt" if signed else "not signed by ca.crt; make both anew")
    matches = _public(key.public_key()) == _public(server.public_key())
    yield Finding("server.key", matches, "belongs to server.crt" if matches else "belongs to another certificate")
    for name, certificate in (("ca.crt", authority), ("server.crt", server)):
        until = certificate.not_valid_after_utc
        valid = certificate.not_valid_before_utc <= datetime.now(UTC) < until
        yield Finding(f"{name} is valid", valid, f"until {until:%Y-%m-%d}")
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = [str(n) for n in [*names.get_values_for_type(x509.DNSName), *names.get_values_for_type(x509.IPAddress)]]
    host = str(ipaddress.ip_address(plan.host)) if ":" in plan.host else plan.host
    covered = host in hosts
    yield Finding("server's name", covered, host if covered else f"nodes connect to {host}, server.crt is for {hosts}")


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _nodes(folder: Path) -> Iterator[Finding]:
    seen: dict[bytes, str] = {}
    for home in _homes(folder):
        text = (home / "key.pub").read_bytes()
        public = _public(serialization.load_ssh_public_key(text))
        pair = (
            not (home / "key").exists()
            or _public(serialization.load_ssh_private_key((home / "key").read_bytes(), None).public_key()) == public
        )
        detail = f"the same key as {seen[public]}" if public in seen else "" if pair else "key and key.pub do not belong together"
        yield Finding(f"key of {home.name}", not detail, detail)
        seen.setdefault(public, home.name)
        same = (home / "ca.crt").read_bytes() == (folder / "ca" / "ca.crt").read_bytes()
        if not same:
            yield Finding(f"ca.crt of {home.name}", False, "differs from ca/ca.crt; copy that one")


def _reach(plan: Plan) -> Iterator[Finding]:
    danger = exposed(plan.bind, plan.port)
    yield Finding("who reaches the server", True, danger or f"its own machine only: it listens on {plan.bind}", bool(danger))


def _connection(folder: Path, plan: Plan) -> Iterator[Finding]:
    """A server that is not there yet is no mistake; one that cannot show this federation's certificate is."""
    yield _answer(folder, "SuperLink", "start.sh", *plan.operator_at)
    if plan.proxied:
        yield _answer(folder, "proxy", "proxy.sh", *plan.nodes_at)


def _answer(folder: Path, what: str, script: str, host: str, port: int) -> Finding:
    context = ssl.create_default_context(cafile=str(folder / "ca" / "ca.crt"))
    at = joined(host, port)
    tunnel = ", or open the tunnel to it" if is_loopback(host) else ""
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as raw, context.wrap_socket(raw, server_hostname=host):
            return Finding(what, True, f"answers at {at}")
    except ssl.SSLError as error:
        return Finding(what, False, f"somebody else answers at {at}: {error.reason}")
    except ConnectionRefusedError:
        return Finding(what, True, f"does not run yet at {at}; start it with superlink/{script}{tunnel}")
    except socket.gaierror as error:
        return Finding(
            what, False, f"the name {host} leads nowhere from here: {error.strerror}; correct it, or make the name known"
        )
    except TimeoutError:
        return Finding(
            what, False, f"no answer from {at} within {PATIENCE} s; is the address right, and does a firewall let you through?"
        )
    except OSError as error:
        return Finding(what, False, f"{at} cannot be reached from here: {error.strerror or error}")
