"""Folders that `fedgwc deploy init` writes, and the mistakes that its check finds."""

from __future__ import annotations

import importlib.metadata
import ipaddress
import os
import re
import socket
import stat
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from shutil import copy, copytree
from typing import Any

import pytest
from cryptography import x509

from fedgwc.core.errors import InputError
from fedgwc.flower.deploy.write import Plan

from .deployed import PROXIED, change, deploy, findings, make, run_config, write_recipe

pytestmark = pytest.mark.usefixtures("nobody_listens")

OPEN_TO_ALL = "0.0.0.0"  # noqa: S104 - what the check warns of
# The plan, where nodes connect, where the operator does, and whether there is a proxy between them.
PLANS: dict[str, tuple[dict[str, Any], str, str, bool]] = {
    "behind a proxy": (PROXIED, "fed.example.org:8443", "127.0.0.1:9", True),
    "on one machine": ({}, "127.0.0.1:8000", "127.0.0.1:8000", False),
    "open to all": ({"host": "fed.example.org", "bind": OPEN_TO_ALL}, "fed.example.org:8000", "fed.example.org:8000", False),
    "in a private network": ({"host": "a.example", "bind": "10.9.8.7"}, "a.example:8000", "a.example:8000", False),
    "addresses of many digits": ({"host": "2001:DB8::1", "bind": "::1"}, "[2001:DB8::1]:8443", "[::1]:8000", True),
    "nodes with their own data": ({"own_data": True, "nodes": 5}, "127.0.0.1:8000", "127.0.0.1:8000", False),
    "private losses": ({"private_losses": True}, "127.0.0.1:8000", "127.0.0.1:8000", False),
}


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    return write_recipe(tmp_path)


@pytest.fixture(params=PLANS)
def written(request: pytest.FixtureRequest, recipe: str, tmp_path: Path) -> tuple[Path, str]:
    """Return a folder for every kind of plan, in a place with an odd name, and the kind."""
    return make(recipe, tmp_path / 'a "q" \\ $b é', **PLANS[request.param][0]), request.param


# Every folder


def test_a_fresh_folder_passes_its_own_check(written: tuple[Path, str]) -> None:
    folder, kind = written
    assert findings(folder) == {}
    warned = {"who reaches the server"} if kind in ("open to all", "in a private network") else set()
    assert findings(folder, "WARNING").keys() == warned
    assert deploy("check", folder) == 0


def test_secrets_are_for_their_owner_only_and_nowhere_else(written: tuple[Path, str]) -> None:
    folder, _ = written
    secrets = [folder / "ca" / "ca.key", folder / "superlink" / "server.key", *folder.glob("nodes/*/key")]
    for path in secrets:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    bodies = {b"".join(p.read_bytes().splitlines()[1:-1])[-70:-20] for p in secrets}
    assert len(bodies) == len(secrets)
    others = [p.read_bytes() for p in folder.rglob("*") if p.is_file() and p not in secrets]
    assert not any(body in text for body in bodies for text in others)


def test_scripts_are_sound_and_ask_for_encryption_and_keys(written: tuple[Path, str]) -> None:
    folder, _ = written
    for script in folder.rglob("*.sh"):
        subprocess.run(["sh", "-n", str(script)], check=True)
        assert os.access(script, os.X_OK)
    superlink, nodes = (folder / "superlink" / "start.sh").read_text(), [p.read_text() for p in folder.glob("nodes/*/start.sh")]
    assert all(f in superlink for f in ("--ssl-keyfile server.key", "--ssl-ca-certfile ca.crt", "--enable-supernode-auth"))
    assert all("--auth-supernode-private-key key" in text and "--root-certificates ca.crt" in text for text in nodes)
    ports = re.findall(r"127\.0\.0\.1 --port (\d+)", "".join(nodes))
    assert len({*ports}) == len(nodes)  # several may run on one machine
    assert not any("insecure" in p.read_text() for p in [*folder.rglob("*.sh"), *folder.rglob("*.toml")])


def test_everybody_connects_where_the_certificate_is_for(written: tuple[Path, str]) -> None:
    folder, kind = written
    plan, nodes_at, operator_at, proxied = PLANS[kind]
    for script in folder.glob("nodes/*/start.sh"):
        assert f'--superlink "{nodes_at}"' in script.read_text()
    connection = tomllib.loads((folder / "flwr" / "config.toml").read_text())["superlink"]["tls"]
    assert connection == {"address": operator_at, "root-certificates": str(folder / "ca" / "ca.crt")}
    assert run_config(folder)["out"] == str(folder / "run")
    assert (folder / "superlink" / "nginx.conf").exists() == proxied

    server = x509.load_pem_x509_certificate((folder / "superlink" / "server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    known = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
    for host in (plan.get("host", "127.0.0.1"), plan.get("bind", "127.0.0.1"), "localhost"):
        assert host == OPEN_TO_ALL or (str(ipaddress.ip_address(host)) if ":" in host else host) in known


def test_private_losses_are_asked_of_the_run_and_insisted_on_by_the_nodes(written: tuple[Path, str]) -> None:
    folder, kind = written
    private = kind == "private losses"
    assert run_config(folder)["private-losses"] is private
    assert all(("private-losses=true" in p.read_text()) == private for p in folder.glob("nodes/*/node-config"))
    if private:
        change(folder / "app" / "pyproject.toml", "private-losses = true", "private-losses = false")
        assert "node-1 insists on it" in findings(folder)["private losses"]


def test_all_nodes_have_come_before_most_of_them_decide_about_data(recipe: str, tmp_path: Path) -> None:
    folder = make(recipe, tmp_path / "own", own_data=True, nodes=5)
    assert run_config(folder)["min-clients"] == 5
    assert (folder / "nodes" / "node-2" / "node-config").read_text().startswith('name="node-2" data=')


# Secrets, and who can reach the server


def test_no_secret_is_printed_or_logged(
    folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    before = [p.read_text() for p in (*folder.rglob("*.key"), *folder.glob("nodes/*/key"))]
    deploy("check", folder)
    deploy("renew", folder, "--new-authority")
    printed = "".join((*capfd.readouterr(), caplog.text)).replace("\n", "")
    assert "superlink" in printed  # the commands did speak
    for text in [*before, (folder / "ca" / "ca.key").read_text()]:
        assert not any(line in printed for line in text.splitlines()[1:-1])


def test_keys_stay_out_of_a_repository_around_them(folder: Path, tmp_path: Path) -> None:
    copytree(folder, tmp_path / "repository" / "federation")
    for command in (["init", "-q"], ["status", "--short", "-uall"]):
        done = subprocess.run(["git", *command], cwd=tmp_path / "repository", check=True, capture_output=True, text=True)
        assert done.stdout == ""


def test_keys_are_never_overwritten(folder: Path, recipe: str) -> None:
    with pytest.raises(InputError, match="keys are never overwritten"):
        make(recipe, folder)


def test_the_readme_says_who_is_an_operator_and_names_ports_and_files(
    folder: Path, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (folder / "README.md").read_text()
    assert all(x in readme for x in ("Whoever reaches that port is an operator", "proxy.sh", "nodes.json", "9094 for node 1"))
    assert deploy("init", tmp_path / "public", "--recipe", recipe, "--bind", OPEN_TO_ALL) == 0
    assert "warning: the server listens on 0.0.0.0:8000, and whoever reaches that port" in capsys.readouterr().err
    assert "is an operator**" in (tmp_path / "public" / "README.md").read_text()
    assert deploy("check", tmp_path / "public") == 0
    assert "WARNING" in capsys.readouterr().out


def test_the_proxy_passes_on_what_nodes_use_and_nothing_else(folder: Path, recipe: str, tmp_path: Path) -> None:
    from flwr.supernode import fleet_http_client

    digits = make(recipe, tmp_path / "digits", host="2001:DB8::1", bind="::1")
    for place, listen, server in ((folder, "8443", "127.0.0.1:9"), (digits, "[::]:8443", "[::1]:8000")):
        conf = (place / "superlink" / "nginx.conf").read_text()
        places = re.findall(r"location (\S+) \{\s*(.*)", conf)
        assert places == [("/v1/fleet/", "limit_except POST { deny all; }"), ("/", "return 403; }")]
        assert f"listen {listen} ssl;" in conf
        assert f"proxy_pass https://{server}/v1/fleet/;" in conf
    paths = re.findall(r'path="([^"]+)"', Path(fleet_http_client.__file__).read_text())
    assert len(paths) > 5
    assert all(path.startswith("/v1/fleet/") for path in paths)


# Mistakes that the check finds

MISTAKES: list[tuple[Callable[[Path], object], str, str]] = [
    (lambda d: (d / "nodes/node-2/key").chmod(0o644), "mode of nodes/node-2/key", "chmod 600"),
    (lambda d: (d / "nodes/node-2").chmod(0o710), "mode of nodes/node-2", "chmod 700"),
    (lambda d: (d / "ca").chmod(0o755), "mode of ca", "755, so others may look into it"),
    (lambda d: (d / "nodes/node-2/node-config").write_text('clients="0-3"'), "clients", "served twice"),
    (lambda d: (d / "nodes/node-2/node-config").write_text('clients="4-6"'), "clients", "served by nobody: [7]"),
    (lambda d: copy(d / "nodes/node-1/key.pub", d / "nodes/node-2/key.pub"), "key of node-2", "node-1"),
    (lambda d: (d / "superlink/server.key").unlink(), "a file", "server.key"),
    (lambda d: copy(d / "ca/ca.crt", d / "superlink/server.crt"), "server's name", "server.crt is for no name"),
    (lambda d: (d / "app/fedgwc_app/recipe.toml").write_text("rounds = 'x'"), "a file", "rounds"),
    (lambda d: (d / "app/data.bin").write_bytes(bytes(10**7)), "app", "too many"),
    (lambda d: (d / "nodes/node-1/ca.crt").write_text("other"), "ca.crt of node-1", "differs"),
]


@pytest.mark.parametrize(("mistake", "what", "said"), MISTAKES)
def test_a_mistake_is_found_before_anything_starts(
    mistake: Callable[[Path], object], what: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mistake(folder)
    assert said in findings(folder)[what]
    assert deploy("check", folder) == 2
    assert "WRONG" in capsys.readouterr().out


def test_a_certificate_of_somebody_else_is_found(folder: Path, recipe: str, tmp_path: Path) -> None:
    other = make(recipe, tmp_path / "other", host="elsewhere.example.org")
    copy(other / "superlink" / "server.crt", folder / "superlink" / "server.crt")
    assert findings(folder).keys() == {"server.crt", "server.key", "server's name"}


def test_a_folder_in_another_place_is_found(folder: Path, tmp_path: Path) -> None:
    """A copy talks to the original's server, and would write into its run; what was moved finds no certificate."""
    copytree(folder, tmp_path / "copy")
    warned = findings(tmp_path / "copy", "WARNING")
    assert "place" in warned
    assert f"change out in app/pyproject.toml to {tmp_path / 'copy' / 'run'}" in warned["out"]
    moved = folder.rename(tmp_path / "moved")
    assert f"make that {moved / 'ca' / 'ca.crt'} in flwr/config.toml" in findings(moved)["place"]
    change(moved / "flwr" / "config.toml", str(folder), str(moved))
    assert not {"place", "out"} & (findings(moved).keys() | findings(moved, "WARNING").keys())  # the server may have that path


def test_other_code_than_nodes_get_is_found(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = folder / "app" / "fedgwc_app" / "own"
    own.mkdir()
    (own / "mine.py").write_text("edited = True")
    (tmp_path / "mine.py").write_text("edited = False")
    monkeypatch.setenv("FEDGWC_USE", str(tmp_path / "mine.py"))
    found = findings(folder)["code of your own"]
    assert f"{tmp_path / 'mine.py'} differs from its copy" in found
    assert "unset FEDGWC_USE" in found


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(), None),  # it does not run yet
        (socket.gaierror(-2, "Name or service not known"), "the name fed.example.org leads nowhere"),
        (TimeoutError(), "no answer from fed.example.org:8443 within 3 s"),
        (OSError(113, "No route to host"), "cannot be reached from here: No route to host"),
    ],
)
def test_only_a_refused_connection_means_that_the_server_is_not_started_yet(
    error: Exception, said: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    found = findings(folder)
    assert "proxy" not in found if said is None else said in found["proxy"]


@pytest.mark.parametrize(("version", "fits"), [("1.39.0", False), ("1.40.0", True), ("1.41.2", True), ("1.42.0", False)])
def test_nodes_must_speak_the_servers_protocol(version: str, fits: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    assert ("Flower" not in findings(folder)) == fits


# What is refused


@pytest.mark.parametrize(
    "plan",
    [
        *({"host": host} for host in ("a b", "$(x)", "a:b")),
        *({"port": 0}, {"nodes": 0}, {"bind": "everywhere"}, {"host": "a", "node_port": 8000}),
    ],
    ids=str,
)
def test_impossible_plans_are_refused(plan: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Plan("digits", **plan)


def test_private_losses_of_an_algorithm_that_compares_updates_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_recipe(tmp_path, algorithm={"name": "cfl"})
    assert deploy("init", tmp_path / "p", "--recipe", recipe, "--private-losses") == 2
    assert "private-losses does not go with CFL" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()  # before anything is written
    folder = make(recipe, tmp_path / "p")
    change(folder / "app" / "pyproject.toml", "private-losses = false", "private-losses = true")
    assert "does not go with CFL" in findings(folder)["private losses"]
