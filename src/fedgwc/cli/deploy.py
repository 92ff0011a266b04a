"""`fedgwc deploy init|check|renew|register|run`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from fedgwc.core.errors import InputError
from fedgwc.runs.tables import Table, show


def _need_flower() -> None:
    for module in ("flwr", "cryptography"):
        if importlib.util.find_spec(module) is None:
            raise InputError(f"fedgwc deploy needs {module}: install fedgwc with its extra `flower`")


def init_command(folder: Path, **decided: Any) -> None:
    """Write a federation's files; `decided` are the fields of a Plan."""
    _need_flower()
    from fedgwc.flower.deploy.network import exposure_warning
    from fedgwc.flower.deploy.write import CLIENTS_PLACEHOLDER, Plan, init
    from fedgwc.runs.plugins import plugin_files

    plan = Plan(**decided)
    configs = init(folder, plan, plugin_files())
    show(Table(["node", "serves"], [[f"node-{i}", config] for i, config in enumerate(configs, 1)]))
    print(f"\nWritten: {folder}. Read {folder / 'README.md'}, then: fedgwc deploy check {folder}")
    if any(CLIENTS_PLACEHOLDER in config for config in configs):
        unknown = f"write whom each node serves into its node-config, in place of {CLIENTS_PLACEHOLDER}"
        print(f"fedgwc: warning: only who has the recipe's data knows how many clients they have; {unknown}", file=sys.stderr)
    if danger := exposure_warning(plan.bind, plan.port):
        print(f"fedgwc: warning: {danger}", file=sys.stderr)


def check_command(folder: Path) -> None:
    _need_flower()
    from fedgwc.flower.deploy.check import check

    findings = check(folder)
    show(Table(["what", "", "detail"], [[f.what, f.verdict, f.detail] for f in findings]))
    wrong = [f for f in findings if not f.ok]
    if wrong:
        raise InputError(f"{len(wrong)} of {len(findings)} checks failed; first: {wrong[0].what}: {wrong[0].detail}")


def renew_command(folder: Path, new_authority: bool) -> None:
    _need_flower()
    from fedgwc.flower.deploy.renew import renew

    for line in renew(folder, new_authority):
        print(line)


def register_command(folder: Path) -> None:
    _need_flower()
    from fedgwc.flower.deploy.flwr_cli import register

    for line in register(folder):
        print(line)


def run_command(folder: Path) -> None:
    """Train or resume; exit with 0 only if the run was completed."""
    _need_flower()
    from fedgwc.flower.deploy.flwr_cli import command, start, wait

    run = start(folder)
    print(f"run {run} is submitted; its log: {command(folder, 'log', run)}", flush=True)
    try:
        status = wait(folder, run, lambda text: print(text, flush=True))
    except KeyboardInterrupt:
        how = f"  follow it: {command(folder, 'log', run)}\n  stop it:   {command(folder, 'stop', run)}"
        raise KeyboardInterrupt(f"run {run} goes on at the server; only the watching has ended\n{how}") from None
    if not status.done:
        why = f": {status.details}" if status.details else ""
        print(f"fedgwc: run {run} was not completed{why}", file=sys.stderr)
        print(f"  why: {command(folder, 'log', run)}", file=sys.stderr)
        print(f"  with the cause removed, fedgwc deploy run {folder} resumes after the last finished round", file=sys.stderr)
        sys.exit(1)
