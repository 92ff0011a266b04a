"""Track which nodes are connected and which clients each of them serves.

Every node is asked once; the question stays open for a while, so that nobody waits for nodes that are away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from flwr.app import ConfigRecord, Message, RecordDict

from fedgwc.core.errors import InputError
from fedgwc.flower import checks
from fedgwc.flower.checks import UNREADABLE, Invalid
from fedgwc.flower.identity import DataDescription, Identity, count_votes, disagreement, in_words, is_tie
from fedgwc.flower.mailbox import Mailbox, Outgoing, Reply, is_away
from fedgwc.flower.options import Options
from fedgwc.flower.roster import Roster
from fedgwc.flower.wire import PROTOCOL

log = logging.getLogger("fedgwc")

MOST_FAILED_QUERIES = 3  # first queries that may fail before a node is left alone
QUERY_SECONDS = 600.0  # seconds that a question waits for a node that may come back

ReadIdentity = Callable[[Message, int], Identity]  # of a node's reply


class NodeTracker:
    """Keeps the roster up to date. A node that did not answer is asked again, and its answer brings it back."""

    def __init__(
        self,
        mailbox: Mailbox,
        roster: Roster,
        read_identity: ReadIdentity,
        data: DataDescription | None = None,
        n_recipe_clients: int | None = None,
        max_clients: int = Options.max_clients,
    ) -> None:
        self.mailbox, self.roster, self.read_identity = mailbox, roster, read_identity
        # The names that clients may have; None: any, of at most `max_clients` clients.
        self.allowed = None if n_recipe_clients is None else {str(k) for k in range(n_recipe_clients)}
        self.max_clients = max_clients
        self.data = data  # of all clients; None: most nodes decide, see `agree_on_data`
        self.newcomers: dict[str, int] = {}  # name -> node, not yet numbered
        self.contested: dict[str, int] = {}  # name -> node that also claims it, and takes over should the other fall silent
        self._queries: dict[str, tuple[int, float]] = {}  # message -> node, when it expires
        self._pending: dict[int, Identity] = {}  # by node, until it is known what data look like
        self._identified: set[int] = set()
        self._refused: set[int] = set()
        self._failed: dict[int, int] = {}

    def update(self) -> None:
        """Note nodes that left, query new ones and read what has arrived."""
        here = self.mailbox.nodes()
        for node in {*self.roster.node.values()} - here - self.roster.silent:
            self.roster.mark_absent(node)
        now = time.monotonic()
        self._queries = {i: (node, until) for i, (node, until) in self._queries.items() if until > now and node in here}
        self._pending = {node: identity for node, identity in self._pending.items() if node in here}
        asked = {node for node, _ in self._queries.values()} | self._pending.keys()
        again = self.roster.silent | self.roster.ask_again
        ask = sorted((here - self._identified | here & again) - asked - self._refused)
        for node, i in zip(ask, self.mailbox.send([_query(node) for node in ask], QUERY_SECONDS), strict=True):
            if i:
                self._queries[i] = (node, now + QUERY_SECONDS)
        for i, reply in self.mailbox.collect(self._queries).items():
            if i in self._queries:
                self._read_reply(self._queries.pop(i)[0], reply)
        self._admit_matching()
        # A node that was restarted under a new id claims what its former self still seems to serve, until that is silent or
        # says that it serves others now.
        free = {None, *self.roster.silent}
        for name, node in [(n, k) for n, k in self.contested.items() if self.roster.node.get(n) in free]:
            del self.contested[name]
            if node in here:
                self._assign(node, (name,))

    def _read_reply(self, node: int, reply: Reply) -> None:
        if is_away(reply):
            return  # it will be asked again
        try:
            if isinstance(reply, Invalid):
                raise reply
            identity = self.read_identity(reply, node)
            if self.allowed is not None and (strange := [n for n in identity.names if n not in self.allowed]):
                raise Invalid(f"it serves {strange[0]!r:.60}, and the recipe's clients are 0 to {len(self.allowed) - 1}")
            self._pending[node] = identity
            self._failed.pop(node, None)
        except (Invalid, *UNREADABLE) as reason:
            self._failed[node] = self._failed.get(node, 0) + 1
            failed = isinstance(reply, Message) and reply.has_error()
            if not failed or (self._failed[node] >= MOST_FAILED_QUERIES and node not in self._identified):
                self._refuse(node, str(reason))
            elif self._failed[node] <= MOST_FAILED_QUERIES:  # of whom it served before nobody has said otherwise
                log.error("node %d failed to introduce itself: %.300s", node, reason)

    def _refuse(self, node: int, reason: str) -> None:
        """Exclude a node and send it the reason for its log."""
        self._refused.add(node)
        log.error("node %d is refused: %.300s", node, reason)
        self.mailbox.send([_query(node, refused=reason[:300])], QUERY_SECONDS)

    def agree_on_data(self, least: int, last: bool = False) -> None:
        """Adopt the majority's data description once its nodes serve `least` clients.

        Whoever comes first may be the one that is wrong, so a single node is believed only at `last`, if nobody has come
        who says otherwise.
        """
        votes = count_votes(self._pending)
        if self.data is not None or not votes:
            return
        if is_tie(votes):
            if last:
                raise disagreement(votes)
        elif last or (len(votes[0].nodes) > 1 and votes[0].clients >= least):
            self.data = votes[0].data
            level = logging.WARNING if len(votes) > 1 else logging.INFO
            log.log(level, "what most nodes say their data look like holds for all. %s", in_words(votes))
            self._admit_matching()

    def _admit_matching(self) -> None:
        """Admit pending nodes whose data match, refuse the others."""
        if self.data is None:
            return
        pending, self._pending = self._pending, {}
        for node, identity in pending.items():
            if identity.data == self.data:
                self._admit(node, identity.names)
            else:
                self._refuse(node, f"its data are {identity.data}, and this run's are {self.data}")

    def _admit(self, node: int, names: tuple[str, ...]) -> None:
        self._identified.add(node)
        self.roster.release(node, names)
        self.newcomers = {name: at for name, at in self.newcomers.items() if name in self.roster.node}
        self.contested = {name: by for name, by in self.contested.items() if by != node}
        self._assign(node, names)

    def _assign(self, node: int, names: tuple[str, ...]) -> None:
        names = self._up_to_limit(node, names)
        taken = self.roster.assign(node, names)
        self.contested |= dict.fromkeys(taken, node)
        if taken:
            log.warning("node %d may not serve %s while another node does", node, ", ".join(taken)[:300])
        known = {*self.roster.names, *taken}
        fresh = [n for n in names if n not in known]
        self.newcomers |= dict.fromkeys(fresh, node)
        log.info("node %d serves %d clients, %d of them new", node, len(names) - len(taken), len(fresh))

    def _up_to_limit(self, node: int, names: tuple[str, ...]) -> tuple[str, ...]:
        """Drop a node's new clients beyond `max_clients`.

        Names cost a node nothing, and the server memory and time.
        """
        known = {*self.roster.names, *self.newcomers}
        fresh = [n for n in names if n not in known]
        over = fresh[max(0, self.max_clients - len(known)) :] if self.allowed is None else []
        if over:
            log.warning("max-clients = %d: %d clients of node %d are left out", self.max_clients, len(over), node)
        out = set(over)
        return tuple(n for n in names if n not in out)

    def gather(self, options: Options, resumed: bool = False) -> None:
        """Wait until enough clients are there.

        A resumed run needs no more of them than any of its rounds does. It gives the others as long to come back as at its
        start, so that a stop of the server changes nothing.
        """
        began = time.monotonic()
        while True:
            self.update()
            waited, enough = time.monotonic() - began, max(1, options.min_clients - len(self.roster.excluded))
            self.agree_on_data(enough, last=waited > options.wait)
            there = self.n_present
            if there >= enough:
                return
            if resumed and there >= options.min_replies and waited >= options.wait:
                log.warning("going on with %d clients; %d were there before", there, len(self.roster))
                return
            if waited > options.wait:
                needed = options.min_replies if resumed else options.min_clients
                change = "min-replies" if resumed else "min-clients"
                raise InputError(
                    f"{there} clients came within {options.wait:g} s and {needed} are needed; "
                    f"start more nodes, or change {change} or wait"
                )
            time.sleep(options.poll)

    @property
    def n_present(self) -> int:
        """Count clients that can be asked, numbered or not."""
        return len(self.roster.available()) + sum(map(self.roster.is_reachable, self.newcomers.values()))

    def sorted_newcomers(self) -> list[str]:
        """List newcomers in order: client 10 comes after client 9."""
        return sorted(self.newcomers, key=lambda n: (not checks.is_number(n), int(n) if checks.is_number(n) else 0, n))


def _query(node: int, **more: str) -> Outgoing:
    return Outgoing(node, "query", RecordDict({"config": ConfigRecord({"protocol": PROTOCOL, **more})}))
