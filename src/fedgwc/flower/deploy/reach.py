"""Checks of the server's address: who reaches it, and whether it shows this federation's certificate."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509

from fedgwc.flower.deploy.finding import Finding
from fedgwc.flower.deploy.network import address, exposure_warning, is_loopback
from fedgwc.flower.deploy.write import Plan

TIMEOUT = 3  # for the server to answer


def reach(plan: Plan) -> Iterator[Finding]:
    """Check whether other machines can act as operator."""
    danger = exposure_warning(plan.bind, plan.port)
    yield Finding("who reaches the server", True, danger or f"its own machine only: it listens on {plan.bind}", bool(danger))


def connections(folder: Path, plan: Plan) -> Iterator[Finding]:
    """Connect to server and proxy, which need not run yet."""
    yield _answer(folder, "SuperLink", "start.sh", *plan.operator_at)
    if plan.proxied:
        yield _answer(folder, "proxy", "proxy.sh", *plan.nodes_at)


def _answer(folder: Path, what: str, script: str, host: str, port: int) -> Finding:
    context = ssl.create_default_context(cafile=str(folder / "ca" / "ca.crt"))
    at = address(host, port)
    tunnel = ", or open the tunnel to it" if is_loopback(host) else ""
    try:
        with (
            socket.create_connection((host, port), timeout=TIMEOUT) as raw,
            context.wrap_socket(raw, server_hostname=host) as tls,
        ):
            shown = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason
        return Finding(what, False, f"what answers at {at} cannot be trusted: {reason}")
    except ConnectionRefusedError:
        return Finding(what, True, f"does not run yet at {at}; start it with superlink/{script}{tunnel}")
    except socket.gaierror as error:
        return Finding(
            what, False, f"the name {host} leads nowhere from here: {error.strerror}; correct it, or make the name known"
        )
    except TimeoutError:
        return Finding(
            what,
            False,
            f"no answer from {at} within {TIMEOUT} s; is the address right, and does a firewall let you through?",
        )
    except OSError as error:
        return Finding(what, False, f"{at} cannot be reached from here: {error.strerror or error}")
    if shown != x509.load_pem_x509_certificate((folder / "superlink" / "server.crt").read_bytes()):
        which = f"another server.crt, valid until {shown.not_valid_after_utc:%Y-%m-%d}"
        detail = f"answers at {at} with {which}; copy superlink/server.crt there and start superlink/{script} again"
        return Finding(what, True, detail, warning=True)
    return Finding(what, True, f"answers at {at}")
