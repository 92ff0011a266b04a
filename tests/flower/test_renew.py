"""Certificates that end, and what `fedgwc deploy renew` makes of them: judged by TLS itself, wherever that can be asked."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fedgwc.core.errors import InputError
from fedgwc.flower.deploy import secrets
from fedgwc.flower.deploy.renew import renew

from .deployed import deploy, findings, make, write_recipe
from .real import free_port

DAY = 1 / 365
Lasting = Callable[..., None]
PAST = -0.5 * DAY / 24  # certificates begin an hour before they are made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path)


def made(where: Path, **plan: Any) -> Path:
    return make(write_recipe(where), where / "d", **{"port": free_port(), **plan})


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> Lasting:
    """`lasting(server=DAY)`: certificates made from now on are valid for so many years."""

    def build(**years: float) -> None:
        for kind, n in years.items():
            monkeypatch.setitem(secrets.YEARS, kind, n)

    return build


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of every file."""
    return {str(p.relative_to(folder)): (p.stat().st_mode, p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


def changed(folder: Path, before: dict[str, tuple[int, bytes]]) -> set[str]:
    after = content(folder)
    return {name for name in after.keys() | before.keys() if after.get(name) != before.get(name)}


def ends(path: Path) -> str:
    return f"{x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc:%Y-%m-%d}"


COPIES = {"superlink/ca.crt", "nodes/node-1/ca.crt", "nodes/node-2/ca.crt", "nodes/node-3/ca.crt"}


@contextmanager
def serving(superlink: Path, port: int) -> Iterator[None]:
    """A server with the certificate and key in that folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(superlink / "server.crt", superlink / "server.key")
    with socket.create_server(("127.0.0.1", port)) as listening:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    with listening.accept()[0] as raw, suppress(OSError), context.wrap_socket(raw, server_side=True):
                        pass

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def accepts(ca: Path, superlink: Path, host: str = "127.0.0.1") -> bool:
    """Whether who trusts `ca` accepts a server with what that folder holds."""
    port = free_port()
    with serving(superlink, port), socket.create_connection(("127.0.0.1", port), 5) as raw:
        try:
            ssl.create_default_context(cafile=str(ca)).wrap_socket(raw, server_hostname=host).close()
        except ssl.SSLError:
            return False
        return True


def copied(path: Path, to: Path) -> Path:
    """As it is carried to another machine."""
    to.mkdir()
    for file in path.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


# A new certificate from the authority's key


def test_only_the_servers_certificate_changes_and_nodes_accept_it(lasting: Lasting, tmp_path: Path) -> None:
    lasting(server=PAST)
    folder = made(tmp_path, host="fed.example.org")
    lasting(server=2)
    before, node = content(folder), folder / "nodes" / "node-1" / "ca.crt"
    assert not accepts(node, folder / "superlink")
    told = "\n".join(renew(folder))
    assert changed(folder, before) == {"superlink/server.crt"}
    for host in ("127.0.0.1", "fed.example.org", "localhost"):
        assert accepts(node, folder / "superlink", host)
    assert not accepts(node, folder / "superlink", "elsewhere.example.org")
    assert f"server.crt is valid until {ends(folder / 'superlink' / 'server.crt')}" in told
    assert "copy superlink/server.crt there. Then start superlink/start.sh and superlink/proxy.sh again" in told
    assert "Nodes: nothing to do" in told


def test_modes_stay_whatever_the_umask(folder: Path) -> None:
    certificate = folder / "superlink" / "server.crt"
    certificate.chmod(0o664)
    umask = os.umask(0o077)
    try:
        renew(folder)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(certificate.stat().st_mode) == 0o664


def test_where_the_key_is_on_the_server_only(folder: Path, tmp_path: Path) -> None:
    server = copied(folder / "superlink", tmp_path / "server")
    (folder / "superlink" / "server.key").unlink()
    renew(folder)
    (server / "server.crt").write_bytes((folder / "superlink" / "server.crt").read_bytes())
    assert accepts(folder / "ca" / "ca.crt", server)


def test_an_authority_that_would_end_first_is_renewed_and_nodes_have_time(lasting: Lasting, tmp_path: Path) -> None:
    lasting(authority=1)
    folder = made(tmp_path)
    lasting(authority=10)
    old, key = copied(folder / "nodes" / "node-1", tmp_path / "old") / "ca.crt", (folder / "ca" / "ca.key").read_bytes()
    server, before = copied(folder / "superlink", tmp_path / "server"), content(folder)
    told = "\n".join(renew(folder))
    assert changed(folder, before) == {"superlink/server.crt", "ca/ca.crt", *COPIES}
    assert (folder / "ca" / "ca.key").read_bytes() == key
    for ca in (old, folder / "nodes" / "node-1" / "ca.crt"):
        for superlink in (server, folder / "superlink"):
            assert accepts(ca, superlink)
    assert "copy superlink/server.crt and superlink/ca.crt there" in told
    assert f"copy ca/ca.crt to each, beside its start.sh, and start that again by {ends(old)}. Until then the old one" in told
    assert findings(folder, "WRONG") == {}


# Without the authority's key


@pytest.mark.parametrize("key", ["lost", "another's", "damaged"])
def test_what_nodes_would_refuse_is_not_made(key: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "ca" / "ca.key"
    if key == "lost":
        path.unlink()
    else:
        path.write_bytes(secrets.private_pem(secrets.new_authority()[1]) if key == "another's" else b"?")
    before = content(folder)
    assert deploy("renew", folder) == 2
    said = {"lost": "is not here", "another's": "is not the key of ca.crt", "damaged": "cannot be read"}
    assert f"ca.key {said[key]}" in (err := capsys.readouterr().err)
    assert key == "damaged" or "--new-authority, after which all nodes need a new ca.crt" in err
    assert changed(folder, before) == set()


def test_a_new_authority_is_one_that_every_node_must_be_told_of(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, before = copied(folder / "nodes" / "node-1", tmp_path / "old") / "ca.crt", content(folder)
    (folder / "ca" / "ca.key").unlink()
    assert deploy("renew", folder, "--new-authority") == 0
    assert changed(folder, before) == {"superlink/server.crt", "ca/ca.crt", "ca/ca.key", *COPIES}
    assert stat.S_IMODE((folder / "ca" / "ca.key").stat().st_mode) == 0o600
    assert accepts(folder / "nodes" / "node-1" / "ca.crt", folder / "superlink")
    assert not accepts(old, folder / "superlink")
    assert "With the old one a node refuses the new server.crt" in capsys.readouterr().out
    assert findings(folder, "WRONG") == {}
    assert "Nodes: nothing to do" in renew(folder)[-1]  # its key is here again


# Interruptions


class Killed(BaseException): ...


@contextmanager
def killed_after(writes: int) -> Iterator[None]:
    replace, left = Path.replace, iter(range(writes))

    def counted(self: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise Killed
        return replace(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", counted)
        yield


CASES = {  # for how many years the authority was made, whether it is to be another, how many files are written, what nodes do
    "a new certificate": (10, False, 1, "Nodes: nothing to do"),
    "an authority that would end first": (1, False, 6, "Nodes: copy ca/ca.crt"),
    "a new authority": (10, True, 7, "Nodes: copy ca/ca.crt"),
}


@pytest.mark.parametrize(("case", "writes"), [(case, n) for case, (_, _, most, _) in CASES.items() for n in range(most)])
def test_after_an_interruption_the_same_command_finishes(case: str, writes: int, lasting: Lasting, tmp_path: Path) -> None:
    years, another, _, nodes = CASES[case]
    lasting(authority=years)
    folder = made(tmp_path)
    lasting(authority=10)
    old = copied(folder / "nodes" / "node-1", tmp_path / "old") / "ca.crt"
    with pytest.raises(Killed), killed_after(writes):
        renew(folder, another)
    for ca in (old, folder / "ca" / "ca.crt", folder / "nodes" / "node-3" / "ca.crt"):
        x509.load_pem_x509_certificate(ca.read_bytes())
        assert another or accepts(ca, folder / "superlink")  # whatever has been copied by then
    assert renew(folder, another)[-1].startswith(nodes)
    assert findings(folder, "WRONG") == {}
    assert not list(folder.rglob("*.tmp"))


# What the check says


def test_a_certificate_that_ends_soon_is_warned_of_with_the_command_that_helps(
    lasting: Lasting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lasting(server=59 * DAY)
    folder = made(tmp_path)
    lasting(server=2)
    end = ends(folder / "superlink" / "server.crt")
    assert findings(folder, "WARNING") == {"server.crt is valid": f"until {end}; do: fedgwc deploy renew {folder}"}
    assert deploy("check", folder) == 0
    assert deploy("renew", folder) == 0
    assert findings(folder, "WARNING") == {}


@pytest.mark.parametrize("which", ["server", "authority"])
def test_one_that_has_ended_is_wrong_and_the_command_helps(which: str, lasting: Lasting, tmp_path: Path) -> None:
    lasting(**{which: PAST})
    folder = made(tmp_path)
    lasting(server=2, authority=10)
    name = {"server": "server.crt", "authority": "ca.crt"}[which]
    assert f"do: fedgwc deploy renew {folder}" in findings(folder, "WRONG")[f"{name} is valid"]
    renew(folder)
    assert findings(folder, "WRONG") == findings(folder, "WARNING") == {}


def test_a_server_that_was_not_started_again_is_seen(lasting: Lasting, tmp_path: Path) -> None:
    port = free_port()
    folder = made(tmp_path, port=port)
    server = copied(folder / "superlink", tmp_path / "server")
    with serving(server, port):
        assert findings(folder, "WARNING") == {}
        old = ends(server / "server.crt")
        lasting(server=1)
        renew(folder)
        said = f"answers at 127.0.0.1:{port} with another server.crt, valid until {old}; copy superlink/server.crt there"
        assert said in findings(folder, "WARNING")["SuperLink"]
    with serving(folder / "superlink", port):
        assert findings(folder, "WARNING") == {}


def test_a_server_whose_certificate_has_ended_is_said_so(lasting: Lasting, tmp_path: Path) -> None:
    lasting(server=PAST)
    folder = made(tmp_path, port=(port := free_port()))
    with serving(folder / "superlink", port):
        said = f"what answers at 127.0.0.1:{port} cannot be trusted: certificate has expired"
        assert said in findings(folder, "WRONG")["SuperLink"]


def test_a_folder_whose_server_is_elsewhere(folder: Path) -> None:
    for name in ("server.key", "server.crt"):
        (folder / "superlink" / name).unlink()
    with pytest.raises(InputError, match=r"server\.crt cannot be read"):
        renew(folder)
