"""Checks of certificates and keys: that they belong together, and how long they are valid."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from fedgwc.flower.deploy.finding import Finding
from fedgwc.flower.deploy.write import Plan, certificate_folders, node_folders

NEAR = timedelta(days=60)  # before its end a certificate is warned of


def check_server(folder: Path, plan: Plan) -> Iterator[Finding]:
    """Check the certificates and key of authority and server."""
    authority = x509.load_pem_x509_certificate((folder / "ca" / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((folder / "superlink" / "server.crt").read_bytes())
    key = serialization.load_pem_private_key((folder / "superlink" / "server.key").read_bytes(), None)
    try:
        server.verify_directly_issued_by(authority)
        signed = True
    except (InvalidSignature, ValueError, TypeError):
        signed = False
    yield Finding("server.crt", signed, "signed by ca.crt" if signed else f"not signed by ca.crt; {_remedy(folder)}")
    matches = _public(key.public_key()) == _public(server.public_key())
    yield Finding("server.key", matches, "belongs to server.crt" if matches else "belongs to another certificate")
    for name, certificate in (("ca.crt", authority), ("server.crt", server)):
        yield _validity(name, certificate, folder)
    hosts = _hosts(server)
    host = str(ipaddress.ip_address(plan.host)) if ":" in plan.host else plan.host
    covered = host in hosts
    yield Finding(
        "server's name",
        covered,
        host if covered else f"nodes connect to {host}, server.crt is for {hosts or 'no name'}; {_remedy(folder)}",
    )


def _hosts(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:  # somebody else made it
        return []
    return [str(n) for n in [*names.get_values_for_type(x509.DNSName), *names.get_values_for_type(x509.IPAddress)]]


def _validity(name: str, certificate: x509.Certificate, folder: Path) -> Finding:
    begins, ends, now = certificate.not_valid_before_utc, certificate.not_valid_after_utc, datetime.now(UTC)
    near = ends - now < NEAR
    detail = f"until {ends:%Y-%m-%d}" if begins <= now else f"only from {begins:%Y-%m-%d} on; is this machine's clock right?"
    return Finding(f"{name} is valid", begins <= now < ends, f"{detail}; {_remedy(folder)}" if near else detail, warning=near)


def _remedy(folder: Path) -> str:
    return f"do: fedgwc deploy renew {shlex.quote(str(folder))}"


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def check_nodes(folder: Path) -> Iterator[Finding]:
    """Check the nodes' keys and their copies of the authority's certificate."""
    seen: dict[bytes, str] = {}
    for home in node_folders(folder):
        text = (home / "key.pub").read_bytes()
        public = _public(serialization.load_ssh_public_key(text))
        pair = (
            not (home / "key").exists()
            or _public(serialization.load_ssh_private_key((home / "key").read_bytes(), None).public_key()) == public
        )
        detail = f"the same key as {seen[public]}" if public in seen else "" if pair else "key and key.pub do not belong together"
        yield Finding(f"key of {home.name}", not detail, detail)
        seen.setdefault(public, home.name)
    for place in certificate_folders(folder):
        if (place / "ca.crt").read_bytes() != (folder / "ca" / "ca.crt").read_bytes():
            yield Finding(f"ca.crt of {place.name}", False, "differs from ca/ca.crt; copy that one")
