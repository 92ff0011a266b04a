"""What `fedgwc deploy` writes, what its check finds wrong, and exit codes that tell the truth."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import copy, copytree
from typing import Any

import pytest
from cryptography import x509

from fedgwc.cli.app import main
from fedgwc.core.errors import InputError
from fedgwc.flower.deploy import flwr_cli
from fedgwc.flower.deploy.check import check
from fedgwc.flower.deploy.write import Plan, init

from . import blobs
from .real import free_port, toml, until

pytestmark = pytest.mark.usefixtures("nobody_listens")


def fails(error: Exception) -> Callable[..., Any]:
    def connect(*_: Any, **__: Any) -> Any:
        raise error

    return connect


@pytest.fixture
def folder(tmp_path) -> Path:
    """A federation whose server's machine is there, and nothing runs on it yet."""
    blobs.write(tmp_path / "blobs.npz")
    (tmp_path / "recipe.toml").write_text(toml(blobs.tables(tmp_path / "blobs.npz")))
    init(tmp_path / "d", Plan(str(tmp_path / "recipe.toml"), host="fed.example.org", port=9))
    return tmp_path / "d"


def wrong(folder: Path) -> dict[str, str]:
    return {f.what: f.detail for f in check(folder) if not f.ok}


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["deploy", *arguments])
    return int(end.value.code or 0)


def test_a_fresh_folder_passes_its_own_check(folder, capsys) -> None:
    assert wrong(folder) == {}
    assert code("check", str(folder)) == 0
    assert "12 clients on 3 nodes" in capsys.readouterr().out


def test_no_secret_is_printed_or_logged(folder, tmp_path, capfd, caplog) -> None:
    caplog.set_level("DEBUG")
    init(tmp_path / "again", Plan(str(tmp_path / "recipe.toml"), host="fed.example.org", port=9))
    for place in (folder, tmp_path / "again"):
        code("check", str(place))
        code("renew", str(place), "--new-authority")
    told = "".join((*capfd.readouterr(), caplog.text)).replace("\n", "")
    assert "superlink" in told  # the check did speak
    for path in (p for place in (folder, tmp_path / "again") for p in (*place.rglob("*.key"), *place.glob("nodes/*/key"))):
        for line in path.read_text().splitlines()[1:-1]:
            assert line not in told, path


def test_secrets_are_for_their_owner_only_and_nowhere_else(folder) -> None:
    secrets = [*folder.glob("ca/ca.key"), *folder.glob("superlink/server.key"), *folder.glob("nodes/*/key")]
    assert len(secrets) == 5
    for path in secrets:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    bodies = [b"".join(p.read_bytes().splitlines()[1:-1])[-70:-20] for p in secrets]
    others = [p for p in folder.rglob("*") if p.is_file() and p not in secrets]
    assert not any(body in p.read_bytes() for body in bodies for p in others)
    assert len({*bodies}) == 5


def test_transport_security_and_authentication_are_on(folder) -> None:
    superlink = (folder / "superlink" / "start.sh").read_text()
    for flag in ("--ssl-keyfile server.key", "--ssl-ca-certfile ca.crt", "--enable-supernode-auth"):
        assert flag in superlink
    for script in folder.glob("nodes/*/start.sh"):
        assert "--auth-supernode-private-key key" in script.read_text()
        assert "--root-certificates ca.crt" in script.read_text()
    assert not any("insecure" in p.read_text() for p in [*folder.rglob("*.sh"), *folder.rglob("*.toml")])


def test_scripts_are_sound_and_ports_differ(folder) -> None:
    scripts = [*folder.rglob("*.sh")]
    for script in scripts:
        subprocess.run(["sh", "-n", str(script)], check=True)
        assert os.access(script, os.X_OK)
    ports = [re.search(r"127\.0\.0\.1 --port (\d+)", s.read_text()) for s in scripts if "nodes" in s.parts]
    assert len({m.group(1) for m in ports if m}) == 3


def test_keys_stay_out_of_a_repository_around_them(folder, tmp_path) -> None:
    shutil.copytree(folder, tmp_path / "repository" / "federation")
    git = {"cwd": tmp_path / "repository", "check": True, "capture_output": True, "text": True}
    subprocess.run(["git", "init", "-q"], **git)
    said = subprocess.run(["git", "status", "--short", "-uall"], **git).stdout
    assert said == ""


def test_keys_are_never_overwritten(folder) -> None:
    with pytest.raises(InputError, match="keys are never overwritten"):
        init(folder, Plan(str(folder / "app" / "fedgwc_app" / "recipe.toml")))


def test_nodes_with_their_own_data(folder, tmp_path) -> None:
    recipe = str(folder / "app" / "fedgwc_app" / "recipe.toml")
    configs = init(tmp_path / "own", Plan(recipe, own_data=True, nodes=5))
    assert configs[1].startswith('name="node-2" data=')
    app = tomllib.loads((tmp_path / "own" / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert app["min-clients"] == 5  # all nodes have come before most of them decide what data look like
    assert wrong(tmp_path / "own") == {}


OWN = """
from torch import nn
from fedgwc.models import MODELS
def net(shape, n_classes, *, bias: bool = True): return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], n_classes, bias=bias))
MODELS["net"] = net
"""


def test_ones_own_code_goes_with_the_app(folder, tmp_path, monkeypatch, capsys) -> None:
    """What loads it does so in a process of its own, as nodes and an operator's later commands are."""
    (tmp_path / "mine.py").write_text(OWN)
    recipe = {**blobs.tables(tmp_path / "blobs.npz"), "model": {"name": "net", "bias": False}}
    (tmp_path / "recipe.toml").write_text(toml(recipe))
    python = [sys.executable, "-m"]
    told = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    init = ["init", "own", "--recipe", "recipe.toml", "--port", str(free_port())]
    monkeypatch.chdir(tmp_path)
    assert code(*init) == 2
    assert "unknown model 'net'" in capsys.readouterr().err
    refused = subprocess.run([*python, "fedgwc", "deploy", *init, "--use", "mine"], **told)
    assert "the app carries files to the nodes, and no installed modules; give a FILE.py" in refused.stderr
    assert not (tmp_path / "own").exists()
    made = subprocess.run([*python, "fedgwc", "deploy", *init, "--use", "mine.py"], **told)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "own/app/fedgwc_app/own/mine.py").read_text() == OWN

    (tmp_path / "mine.py").unlink()
    done = subprocess.run([*python, "fedgwc", "deploy", "check", "own"], **told)
    assert done.returncode == 0, done.stderr
    apps = [sys.executable, "-c", "import fedgwc_app.client, fedgwc_app.server"]
    subprocess.run(apps, cwd=tmp_path / "own" / "app", check=True)
    (tmp_path / "own/app/fedgwc_app/own/mine.py").write_text("import nowhere")
    assert code("check", "own") == 2
    assert "mine.py cannot be loaded: ModuleNotFoundError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "what", "said"),
    [
        (lambda d: (d / "nodes/node-2/key").chmod(0o644), "mode of nodes/node-2/key", "chmod 600"),
        (lambda d: (d / "nodes/node-2").chmod(0o710), "mode of nodes/node-2", "chmod 700"),
        (lambda d: (d / "ca").chmod(0o755), "mode of ca", "755, so others may look into it"),
        (lambda d: (d / "nodes/node-2/node-config").write_text('clients="0-3"'), "clients", "served twice"),
        (lambda d: (d / "nodes/node-2/node-config").write_text('clients="4-6"'), "clients", "served by nobody: [7]"),
        (lambda d: copy(d / "nodes/node-1/key.pub", d / "nodes/node-2/key.pub"), "key of node-2", "node-1"),
        (lambda d: (d / "superlink/server.key").unlink(), "a file", "server.key"),
        (lambda d: (d / "app/fedgwc_app/recipe.toml").write_text("rounds = 'x'"), "a file", "rounds"),
        (lambda d: (d / "app/data.bin").write_bytes(bytes(10**7)), "app", "too many"),
        (lambda d: (d / "nodes/node-1/ca.crt").write_text("other"), "ca.crt of node-1", "differs"),
    ],
)
def test_what_is_wrong_is_found_before_anything_starts(change, what: str, said: str, folder, capsys) -> None:
    change(folder)
    found = wrong(folder)
    assert said in found[what], found
    assert code("check", str(folder)) == 2
    assert "WRONG" in capsys.readouterr().out


def test_a_folder_in_another_place_is_found(folder, tmp_path) -> None:
    """A copy talks to the original's server, and would write into its run; what was moved finds no certificate."""
    copytree(folder, tmp_path / "copy")
    found = {f.what: (f.verdict, f.detail) for f in check(tmp_path / "copy")}
    assert found["place"][0] == found["out"][0] == "WARNING"
    assert f"change out in app/pyproject.toml to {tmp_path / 'copy' / 'run'}" in found["out"][1]
    folder.rename(tmp_path / "moved")
    assert f"make that {tmp_path / 'moved' / 'ca' / 'ca.crt'} in flwr/config.toml" in wrong(tmp_path / "moved")["place"]
    config = tmp_path / "moved" / "flwr" / "config.toml"
    config.write_text(config.read_text().replace(str(folder), str(tmp_path / "moved")))
    assert not {"place", "out"} & {f.what for f in check(tmp_path / "moved")}  # the server's machine may have that path


def test_other_code_than_nodes_get_is_found(folder, tmp_path, monkeypatch) -> None:
    own = folder / "app" / "fedgwc_app" / "own"
    own.mkdir()
    (own / "mine.py").write_text("edited = True")
    (tmp_path / "mine.py").write_text("edited = False")
    monkeypatch.setenv("FEDGWC_USE", str(tmp_path / "mine.py"))
    assert f"{tmp_path / 'mine.py'} differs from its copy" in wrong(folder)["code of your own"]
    assert "unset FEDGWC_USE" in wrong(folder)["code of your own"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "the name fed.example.org leads nowhere"),
        (TimeoutError(), "no answer from fed.example.org:8443 within 3 s"),
        (OSError(113, "No route to host"), "cannot be reached from here: No route to host"),
    ],
)
def test_only_a_refused_connection_means_that_the_server_is_not_started_yet(error, said: str, folder, monkeypatch) -> None:
    assert "proxy" not in wrong(folder)
    monkeypatch.setattr(socket, "create_connection", fails(error))
    assert said in wrong(folder)["proxy"]


def test_a_certificate_of_somebody_else_is_found(folder, tmp_path) -> None:
    recipe = str(folder / "app" / "fedgwc_app" / "recipe.toml")
    init(tmp_path / "other", Plan(recipe, host="elsewhere.example.org"))
    (folder / "superlink" / "server.crt").write_bytes((tmp_path / "other" / "superlink" / "server.crt").read_bytes())
    assert wrong(folder).keys() == {"server.crt", "server.key", "server's name"}


def test_a_certificate_without_names_is_found(folder) -> None:
    authority = folder / "ca" / "ca.crt"  # it is for nobody's name
    (folder / "superlink" / "server.crt").write_bytes(authority.read_bytes())
    assert "server.crt is for no name" in wrong(folder)["server's name"]


def test_a_folder_of_something_else(tmp_path, capsys) -> None:
    assert code("check", str(tmp_path)) == 2
    assert "was not written by fedgwc deploy init" in capsys.readouterr().err


@pytest.mark.parametrize(
    "plan",
    [
        {"host": "a b"},
        {"host": "$(x)"},
        {"port": 0},
        {"nodes": 0},
        {"bind": "everywhere"},
        {"host": "a:b"},
        {"host": "a", "node_port": 8000},
    ],
)
def test_impossible_plans_are_refused(plan) -> None:
    with pytest.raises(InputError):
        Plan("digits", **plan)


def fake_flwr(monkeypatch, tmp_path, outputs: dict[str, list[str]]) -> None:
    """A `flwr` that always exits with 0 and says what it is told, the last line again and again."""
    program = tmp_path / "flwr"
    (tmp_path / "said.json").write_text(json.dumps(outputs))
    program.write_text(
        f"""#!/bin/sh
exec {os.environ.get("PYTHON", "python3")} - "$@" <<'END'
import json, sys, pathlib
path = pathlib.Path({str(tmp_path / "said.json")!r})
said = json.loads(path.read_text())
lines = said[sys.argv[1]]
print(lines[0])
if len(lines) > 1:
    said[sys.argv[1]] = lines[1:]
    path.write_text(json.dumps(said))
END
"""
    )
    program.chmod(0o755)
    monkeypatch.setattr(flwr_cli.shutil, "which", lambda *_, **__: str(program))
    monkeypatch.setattr(flwr_cli.time, "sleep", lambda _: None)


def runs(*statuses: str) -> list[str]:
    return [json.dumps({"success": True, "runs": [{"status": s}]}) for s in statuses]


@pytest.mark.parametrize(
    ("last", "expected"), [("finished:completed", 0), ("finished:failed", 1), ("finished:stopped", 1), ("finished", 1)]
)
def test_exit_codes_tell_the_truth(last: str, expected: int, folder, tmp_path, monkeypatch, capsys) -> None:
    started = json.dumps({"success": True, "run-id": "77"})
    fake_flwr(monkeypatch, tmp_path, {"run": ["building ...\n" + started], "ls": runs("pending", "running", last)})
    assert code("run", str(folder)) == expected
    out = capsys.readouterr()
    assert f"run 77: {last}" in out.out
    assert ("was not completed" in out.err) == bool(expected)


def test_a_run_that_failed_says_why(folder, tmp_path, monkeypatch, capsys) -> None:
    why = "another process is writing to /srv/run"
    failed = json.dumps({"success": True, "runs": [{"status": "finished:failed", "status-details": why}]})
    fake_flwr(monkeypatch, tmp_path, {"run": [json.dumps({"success": True, "run-id": "77"})], "ls": [failed]})
    assert code("run", str(folder)) == 1
    assert f"run 77 was not completed: {why}" in capsys.readouterr().err


def test_a_server_that_does_not_answer_for_a_moment_is_asked_again(folder, tmp_path, monkeypatch, capsys) -> None:
    started = json.dumps({"success": True, "run-id": "77"})
    away = json.dumps({"success": False, "error-message": "no SuperLink there"})
    fake_flwr(monkeypatch, tmp_path, {"run": [started], "ls": [*runs("running"), away, away, *runs("running", flwr_cli.DONE)]})
    assert code("run", str(folder)) == 0
    assert capsys.readouterr().out.count("cannot be asked, trying again (flwr ls failed: no SuperLink there)") == 1
    fake_flwr(monkeypatch, tmp_path, {"ls": [json.dumps({"success": True, "runs": []})]})
    with pytest.raises(InputError, match=r"run 77 may go on.*does not know run 77"):
        flwr_cli.wait(folder, 77, print, patience=0)


def test_who_stops_watching_is_told_that_the_run_goes_on(folder, tmp_path, monkeypatch, capsys) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    fake_flwr(monkeypatch, tmp_path, {"run": [json.dumps({"success": True, "run-id": "77"})], "ls": runs("running")})
    monkeypatch.setattr(flwr_cli.time, "sleep", interrupted)
    assert code("run", str(folder)) == 130
    monkeypatch.setattr(flwr_cli.time, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    assert code("run", str(folder)) == 143
    said = capsys.readouterr().err
    assert "run 77 goes on at the server" in said
    for what in ("log", "stop"):
        assert f"FLWR_HOME={folder / 'flwr'} flwr {what} 77 tls" in said


@pytest.mark.parametrize("command", ["run", "register", "check"])
def test_a_folder_that_is_not_there_stays_so(command: str, tmp_path, capsys) -> None:
    assert code(command, str(tmp_path / "nosuch")) == 2
    assert "was not written by fedgwc deploy init" in capsys.readouterr().err
    assert not (tmp_path / "nosuch").exists()


def test_the_nodes_numbers_are_kept(folder, tmp_path, monkeypatch) -> None:
    answers = [json.dumps({"success": True, "node-id": str(n)}) for n in (11, 22, 33)]
    again = json.dumps({"success": False, "error-message": "Public key already in use"})
    fake_flwr(monkeypatch, tmp_path, {"supernode": [*answers, again]})
    flwr_cli.register(folder)
    assert json.loads((folder / "nodes.json").read_text()) == {"node-1": "11", "node-2": "22", "node-3": "33"}
    (folder / "nodes" / "notes.txt").write_text("whom to call")
    assert flwr_cli.register(folder)[1] == "node-2: is registered already as node 22"
    (folder / "nodes.json").write_text('{"node-1": "1')
    with pytest.raises(InputError, match=r"nodes\.json is damaged .*; delete it"):
        flwr_cli.register(folder)


def fake_node(tmp_path: Path, body: str) -> dict[str, str]:
    """A SuperNode that does what it is told, pauses that take no time, and the environment in which start.sh finds them."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("flower-supernode", body), ("sleep", "")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def test_a_node_that_the_server_refuses_for_a_while_tries_again(folder, tmp_path) -> None:
    """After a crash Flower lets a node in again only when it has missed its heartbeats; until then it ends with code 305."""
    body = f'echo "$@" >> {tmp_path}/tried\n[ "$(wc -l < {tmp_path}/tried)" -ge 3 ] || exit 49'
    script = folder / "nodes" / "node-1" / "start.sh"
    done = subprocess.run([script], env=fake_node(tmp_path, body), capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr.count("ended with code 49 and is started again in 15 seconds") == 2
    assert len(set((tmp_path / "tried").read_text().splitlines())) == 1  # the same arguments each time


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ending_a_nodes_script_ends_the_node(number: int, folder, tmp_path) -> None:
    body = f"trap 'touch {tmp_path}/ended; exit 0' TERM\ntouch {tmp_path}/started\nwhile :; do /bin/sleep 0.1; done"
    script = folder / "nodes" / "node-1" / "start.sh"
    # What a shell starts with & ignores SIGINT, and so would all of its offspring.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    node = subprocess.Popen([script], env=fake_node(tmp_path, body), start_new_session=True, preexec_fn=heeds)
    try:
        until("it runs", (tmp_path / "started").exists, 20)
        node.send_signal(number)
        assert node.wait(20) == 143
        assert (tmp_path / "ended").exists()
    finally:
        with suppress(ProcessLookupError):  # all of it has ended, as it should
            os.killpg(node.pid, signal.SIGKILL)
        node.wait()


def test_a_run_that_cannot_be_submitted_is_told(folder, tmp_path, monkeypatch, capsys) -> None:
    fake_flwr(monkeypatch, tmp_path, {"run": [json.dumps({"success": False, "error-message": "no SuperLink there"})]})
    assert code("run", str(folder)) == 2
    assert "flwr run failed: no SuperLink there" in capsys.readouterr().err


def test_the_core_does_not_need_flower() -> None:
    program = (
        "import sys, fedgwc, fedgwc.cli.app, fedgwc.runs.loop\n"
        "assert not any(m.split('.')[0] == 'flwr' for m in sys.modules)\n"
        "sys.modules['flwr'] = None\n"
        "try:\n    fedgwc.flower.client_app\n"
        "except ModuleNotFoundError as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "its extra `flower`" in done.stdout


# Who can reach the server


def test_nobody_elses_machine_reaches_the_operators_port_unless_asked_for(folder) -> None:
    """Flower's Control API has no authentication here and shares its port with what nodes use."""
    assert "--host 127.0.0.1 --port 9 " in (folder / "superlink" / "start.sh").read_text()
    assert tomllib.loads((folder / "flwr" / "config.toml").read_text())["superlink"]["tls"]["address"] == "127.0.0.1:9"
    for script in folder.glob("nodes/*/start.sh"):
        assert '--superlink "fed.example.org:8443"' in script.read_text()
    readme = (folder / "README.md").read_text()
    assert "Whoever reaches that port is an operator" in readme
    assert "superlink/proxy.sh" in readme


def test_the_readme_names_the_ports_and_the_file_of_node_numbers(folder) -> None:
    readme = (folder / "README.md").read_text()
    assert "nodes.json" in readme
    assert "9094 for node 1" in readme
    assert "shows the log, and" not in readme  # it shows changes of status


def test_the_proxy_passes_on_what_nodes_use_and_nothing_else(folder) -> None:
    from flwr.supernode import fleet_http_client

    conf = (folder / "superlink" / "nginx.conf").read_text()
    places = re.findall(r"location (\S+) \{\s*(.*)", conf)
    assert places == [("/v1/fleet/", "limit_except POST { deny all; }"), ("/", "return 403; }")]
    assert "proxy_pass https://127.0.0.1:9/v1/fleet/;" in conf
    assert "listen 8443 ssl;" in conf
    paths = re.findall(r'path="([^"]+)"', Path(fleet_http_client.__file__).read_text())
    assert len(paths) > 5
    assert all(path.startswith("/v1/fleet/") for path in paths)


@pytest.mark.parametrize(("version", "fits"), [("1.39.0", False), ("1.40.0", True), ("1.41.2", True), ("1.42.0", False)])
def test_nodes_must_speak_the_servers_protocol(version: str, fits: bool, folder, monkeypatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    assert ("Flower" not in wrong(folder)) == fits


def test_odd_paths_and_addresses_of_many_digits(tmp_path, folder, monkeypatch) -> None:
    odd = tmp_path / 'a "q" \\ $b é'
    init(odd, Plan(str(tmp_path / "recipe.toml"), host="2001:DB8::1", bind="::1"))
    connection = tomllib.loads((odd / "flwr" / "config.toml").read_text())["superlink"]["tls"]
    assert connection == {"address": "[::1]:8000", "root-certificates": str(odd / "ca" / "ca.crt")}
    app = tomllib.loads((odd / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert app["out"] == str(odd / "run")
    assert '--superlink "[2001:DB8::1]:8443"' in (odd / "nodes" / "node-1" / "start.sh").read_text()
    conf = (odd / "superlink" / "nginx.conf").read_text()
    assert "listen [::]:8443 ssl;" in conf
    assert "proxy_pass https://[::1]:8000/v1/fleet/;" in conf
    assert wrong(odd) == {}


def test_on_one_machine_nodes_need_no_proxy(tmp_path, folder) -> None:
    init(tmp_path / "one", Plan(str(tmp_path / "recipe.toml")))
    assert not (tmp_path / "one" / "superlink" / "nginx.conf").exists()
    assert '--superlink "127.0.0.1:8000"' in (tmp_path / "one" / "nodes" / "node-1" / "start.sh").read_text()


def test_a_server_that_others_reach_is_warned_of(tmp_path, folder, capsys) -> None:
    public, recipe = tmp_path / "public", str(tmp_path / "recipe.toml")
    assert code("init", str(public), "--recipe", recipe, "--port", "9", "--bind", "0.0.0.0") == 0  # noqa: S104
    assert "warning: the server listens on 0.0.0.0:9, and whoever reaches that port" in capsys.readouterr().err
    assert "is an operator**" in (public / "README.md").read_text()
    assert [f.what for f in check(public) if f.verdict == "WARNING"] == ["who reaches the server"]
    assert code("check", str(public)) == 0
    assert "WARNING" in capsys.readouterr().out
    assert not [f for f in check(folder) if f.warning]


def test_the_certificate_is_for_the_address_that_the_server_app_connects_to(tmp_path, folder) -> None:
    init(tmp_path / "vpn", Plan(str(tmp_path / "recipe.toml"), host="fed.example.org", bind="10.9.8.7"))
    server = x509.load_pem_x509_certificate((tmp_path / "vpn" / "superlink" / "server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "10.9.8.7" in map(str, names.get_values_for_type(x509.IPAddress))


# Private losses


def test_private_losses_are_asked_of_the_run_and_insisted_on_by_the_nodes(folder, tmp_path, capsys) -> None:
    recipe, private = str(tmp_path / "recipe.toml"), tmp_path / "p"
    assert code("init", str(private), "--recipe", recipe, "--private-losses") == 0
    app = private / "app" / "pyproject.toml"
    assert tomllib.loads(app.read_text())["tool"]["flwr"]["app"]["config"]["private-losses"] is True
    assert all("private-losses=true" in p.read_text() for p in private.glob("nodes/*/node-config"))
    assert wrong(private) == {}
    app.write_text(app.read_text().replace("private-losses = true", "private-losses = false"))
    assert "node-1 insists on it" in wrong(private)["private losses"]
    assert "private-losses = false" in (folder / "app" / "pyproject.toml").read_text()
    assert not any("private" in p.read_text() for p in folder.glob("nodes/*/node-config"))


def test_private_losses_of_an_algorithm_that_compares_updates_are_refused_before_anything_is_written(tmp_path, capsys) -> None:
    blobs.write(tmp_path / "blobs.npz")
    (tmp_path / "recipe.toml").write_text(toml({**blobs.tables(tmp_path / "blobs.npz"), "algorithm": {"name": "cfl"}}))
    assert code("init", str(tmp_path / "p"), "--recipe", str(tmp_path / "recipe.toml"), "--private-losses") == 2
    assert "private-losses does not go with CFL" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()
    init(tmp_path / "p", Plan(str(tmp_path / "recipe.toml")))
    app = tmp_path / "p" / "app" / "pyproject.toml"
    app.write_text(app.read_text().replace("private-losses = false", "private-losses = true"))
    assert "does not go with CFL" in wrong(tmp_path / "p")["private losses"]
