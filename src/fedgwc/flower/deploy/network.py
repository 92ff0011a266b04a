"""The addresses of the server, and the machines that can reach it.

Flower serves three things at one port: what nodes use (the Fleet API, which asks for a registered key), what the server app
uses, and what the operator uses (the Control API, which asks for nothing: whoever reaches it may register nodes and send
code to all of them). So the port stays on the server's loopback interface unless an operator asks for something else, and
nodes come in through a proxy that passes on the Fleet API alone.
"""

from __future__ import annotations

import ipaddress

NODE_PORT = 8443


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address(host: str, port: int) -> str:
    """Join host and port.

    >>> address("fed.example.org", 8000), address("2001:db8::1", 8000)
    ('fed.example.org:8000', '[2001:db8::1]:8000')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def exposure_warning(bind: str, port: int) -> str:
    """Warn of a server that other machines reach; empty if none do."""
    if is_loopback(bind):
        return ""
    return (
        f"the server listens on {address(bind, port)}, and whoever reaches that port is an operator: may register nodes "
        "and run code on the server and on all nodes. Let a firewall admit only machines you trust that far, "
        "or bind to 127.0.0.1 and let nodes in through the proxy"
    )


LOCAL = """\
Everything here is on one machine: the server listens on `$bind`, and other machines cannot reach it. Whoever has an account
on this machine is an operator all the same: Flower asks nodes for a key, but not who registers nodes and starts runs."""

PROXIED = """\
The server listens on `$operator_at` only. Whoever reaches that port is an operator: may register nodes, and run code of his
own on the server and on all nodes. Flower asks nodes for a key, but not who registers nodes and starts runs. So nodes do
not connect to it: they connect to `$nodes_at`, where `superlink/proxy.sh` (nginx, as the same user as the server) passes on
`/v1/fleet/`, which needs a registered key, and nothing else. Open port $node_port to the nodes, and port $port to nobody.

The operator's commands (`register`, `run`) connect to `$operator_at`: run them on the server, or through a tunnel, `ssh -N
-L $port:$operator_at $host`. Whoever has an account on the server, or on a machine with that tunnel open, is an operator
too."""

OPEN = """\
**The server listens on `$bind`, and whoever reaches port $port is an operator**: may register nodes, and run code of his
own on the server and on all nodes. Flower asks nodes for a key, but not who registers nodes and starts runs, so every node
can do it. Let a firewall admit only machines whose owners you trust that far, or make the federation anew with `--bind
127.0.0.1`: nodes then come in through a proxy that passes on only what they need."""
