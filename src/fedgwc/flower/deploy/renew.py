"""`fedgwc deploy renew`: new certificates. Keys of server and nodes stay as they are, and so does all else."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from fedgwc.core.errors import InputError
from fedgwc.flower.deploy import secrets
from fedgwc.flower.deploy.secrets import Authority
from fedgwc.flower.deploy.write import Plan, certificate_folders, certificate_names, read_plan
from fedgwc.io.atomic import write_atomically


def renew(folder: Path, new_authority: bool = False) -> list[str]:
    """Renew the server's certificate; return what is left to do.

    The authority's own is made anew where it would end before the server's. While its key stays, what it signed holds under
    its old certificate and under its new one, so no order of copying or restarting is wrong. With another key all copies
    must change; the authority's own come last, so that after an interruption the command can be given again.
    """
    plan = read_plan(folder)
    before = _certificate(folder / "ca" / "ca.crt")
    authority, key = secrets.new_authority() if new_authority else _kept(folder, before)
    server = secrets.server_certificate(_servers_key(folder), certificate_names(plan), (authority, key))
    if server.not_valid_after_utc > authority.not_valid_after_utc:
        authority = secrets.authority_certificate(key)
    trusted = secrets.public_pem(authority)
    for place in certificate_folders(folder):
        _replace(place / "ca.crt", trusted)
    _replace(folder / "superlink" / "server.crt", secrets.public_pem(server))
    _replace(folder / "ca" / "ca.crt", trusted)
    if new_authority:
        _replace(folder / "ca" / "ca.key", secrets.private_pem(key))
    return [
        f"superlink/server.crt is valid until {_day(server)}, ca/ca.crt until {_day(authority)}.",
        _for_the_server(folder, plan, authority != before),
        _for_the_nodes(before, authority),
    ]


def _kept(folder: Path, certificate: x509.Certificate) -> Authority:
    """Load the authority, whose key may be kept elsewhere."""
    path = folder / "ca" / "ca.key"
    remedy = "bring it back for the moment, or if it is lost renew with --new-authority, after which all nodes need a new ca.crt"
    if not path.exists():
        raise InputError(f"{path} is not here, and nodes accept only what it has signed; {remedy}")
    key = _key(path)
    if key.public_key() != certificate.public_key():
        raise InputError(f"{path} is not the key of ca.crt, and nodes accept only what that has signed; {remedy}")
    return certificate, key


def _servers_key(folder: Path) -> CertificatePublicKeyTypes:
    """Load the server's public key; the private one may be elsewhere."""
    path = folder / "superlink" / "server.key"
    return _key(path).public_key() if path.exists() else _certificate(path.with_name("server.crt")).public_key()


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path} is of another kind than the keys that fedgwc deploy init makes")
    return key


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _replace(path: Path, data: bytes) -> None:
    """Replace a file and keep its mode, 600 for a new one."""
    there = path.exists()
    if not there or path.read_bytes() != data:
        write_atomically(path, data, stat.S_IMODE(path.stat().st_mode) if there else 0o600)


def _day(certificate: x509.Certificate) -> str:
    return f"{certificate.not_valid_after_utc:%Y-%m-%d}"


def _for_the_server(folder: Path, plan: Plan, both: bool) -> str:
    files = "superlink/server.crt and superlink/ca.crt" if both else "superlink/server.crt"
    scripts = "superlink/start.sh and superlink/proxy.sh" if plan.proxied else "superlink/start.sh"
    return (
        f"Server: if it is another machine, copy {files} there. Then start {scripts} again, for certificates are read at the "
        f"start only. That ends a run that is going on; fedgwc deploy run {shlex.quote(str(folder))} resumes it."
    )


def _for_the_nodes(before: x509.Certificate, authority: x509.Certificate) -> str:
    if authority == before:
        return "Nodes: nothing to do; they come back by themselves."
    if authority.public_key() == before.public_key():
        when = f" by {_day(before)}. Until then the old one does"
    else:
        when = ". With the old one a node refuses the new server.crt, and with the new one the old"
    return f"Nodes: copy ca/ca.crt to each, beside its start.sh, and start that again{when}."
