"""Certificates and keys. Every private key is a file that only its owner may read; none of them is ever printed."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEARS = {"authority": 10, "server": 2}
Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def write_secret(path: Path, data: bytes) -> None:
    """Write a new file with mode 600 from the start."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def make_authority(folder: Path) -> Authority:
    """Write ca.crt and ca.key, which sign the server's certificate."""
    certificate, key = new_authority()
    (folder / "ca.crt").write_bytes(public_pem(certificate))
    write_secret(folder / "ca.key", private_pem(key))
    return certificate, key


def new_authority() -> Authority:
    """Make an authority with a new key."""
    key = ec.generate_private_key(ec.SECP256R1())
    return authority_certificate(key), key


def authority_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """Make the authority's own certificate.

    The name is the same each time: what an authority signed holds under every certificate that it had or will have.
    """
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedgwc federation")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # signs certificates and revocations
    built = _builder(name, name, key.public_key(), "authority")
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).add_extension(usage, critical=True)
    built = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return built.sign(key, hashes.SHA256())


def make_server(folder: Path, hosts: list[str], authority: Authority) -> None:
    """Write server.crt and server.key, for these names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "server.crt").write_bytes(public_pem(server_certificate(key.public_key(), hosts, authority)))
    write_secret(folder / "server.key", private_pem(key))


def server_certificate(key: CertificatePublicKeyTypes, hosts: list[str], authority: Authority) -> x509.Certificate:
    """Make a certificate for the server's key and names."""
    certificate, signer = authority
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    built = _builder(name, certificate.subject, key, "server")
    built = built.add_extension(x509.SubjectAlternativeName([_general(h) for h in hosts]), critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return built.add_extension(issuer, critical=False).sign(signer, hashes.SHA256())


def make_node(folder: Path) -> None:
    """Write key and key.pub, by which the server knows a node."""
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    write_secret(folder / "key", key.private_bytes(encoding, serialization.PrivateFormat.OpenSSH, plain))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / "key.pub").write_bytes(public + b"\n")


def _builder(subject: x509.Name, issuer: x509.Name, key: CertificatePublicKeyTypes, kind: str) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    built = built.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
    return built.not_valid_after(now + datetime.timedelta(days=365 * YEARS[kind]))


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def public_pem(certificate: x509.Certificate) -> bytes:
    """Encode a certificate."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Encode a private key."""
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, plain)
