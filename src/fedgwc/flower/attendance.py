"""Who is there. Every node is asked once whom it serves; the question stays open, so that nobody waits for the absent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from flwr.app import ConfigRecord, Message, RecordDict

from fedgwc.core.errors import InputError
from fedgwc.flower import checks
from fedgwc.flower.checks import UNREADABLE, Invalid
from fedgwc.flower.introductions import Identity, Look, is_tie, told, undecided, votes
from fedgwc.flower.mailbox import Letter, Post, Reply, is_away
from fedgwc.flower.options import Options
from fedgwc.flower.roster import Roster
from fedgwc.flower.wire import PROTOCOL

log = logging.getLogger("fedgwc")

PATIENCE = 3  # first introductions that may fail before a node is left alone
OPEN = 600.0  # seconds that a question waits for a node that may come back

Introduction = Callable[[Message, int], Identity]


class Attendance:
    """Keeps the roster's nodes up to date. A node that fell silent is asked again, and its answer brings it back."""

    def __init__(
        self,
        post: Post,
        roster: Roster,
        introduction: Introduction,
        like: Look | None = None,
        numbered: int | None = None,
        most: int = Options.max_clients,
    ) -> None:
        self.post, self.roster, self.introduction = post, roster, introduction
        self.numbers = None if numbered is None else {str(k) for k in range(numbered)}  # what clients are called; None: anything
        self.most = most  # clients, where they are called anything
        self.like = like  # what all clients' data look like; None: most nodes decide, see `settle`
        self.newcomers: dict[str, int] = {}  # name -> node, not yet numbered
        self.contested: dict[str, int] = {}  # name -> node that also claims it, and takes over should the other fall silent
        self._open: dict[str, tuple[int, float]] = {}  # message -> node, when it expires
        self._said: dict[int, Identity] = {}  # by nodes that wait to be seated, as all do until it is known what data look like
        self._met: set[int] = set()
        self._refused: set[int] = set()
        self._failed: dict[int, int] = {}

    def update(self) -> None:
        """Note who left, greet who is new, read who has answered."""
        here = self.post.nodes()
        for node in {*self.roster.node.values()} - here - self.roster.silent:
            self.roster.absent(node)
        now = time.monotonic()
        self._open = {i: (node, until) for i, (node, until) in self._open.items() if until > now and node in here}
        self._said = {node: identity for node, identity in self._said.items() if node in here}
        asked = {node for node, _ in self._open.values()} | self._said.keys()
        again = self.roster.silent | self.roster.doubtful
        ask = sorted((here - self._met | here & again) - asked - self._refused)
        for node, i in zip(ask, self.post.send([_query(node) for node in ask], OPEN), strict=True):
            if i:
                self._open[i] = (node, now + OPEN)
        for i, reply in self.post.collect(self._open).items():
            if i in self._open:
                self._meet(self._open.pop(i)[0], reply)
        self._seat()
        # A node that was restarted under a new id claims what its former self still seems to serve, until that is silent or
        # says that it serves others now.
        free = {None, *self.roster.silent}
        for name, node in [(n, k) for n, k in self.contested.items() if self.roster.node.get(n) in free]:
            del self.contested[name]
            if node in here:
                self._place(node, (name,))

    def _meet(self, node: int, reply: Reply) -> None:
        if is_away(reply):
            return  # it will be asked again
        try:
            if isinstance(reply, Invalid):
                raise reply
            identity = self.introduction(reply, node)
            if self.numbers is not None and (strange := [n for n in identity.names if n not in self.numbers]):
                raise Invalid(f"it serves {strange[0]!r:.60}, and the recipe's clients are 0 to {len(self.numbers) - 1}")
            self._said[node] = identity
            self._failed.pop(node, None)
        except (Invalid, *UNREADABLE) as reason:
            self._failed[node] = self._failed.get(node, 0) + 1
            failed = isinstance(reply, Message) and reply.has_error()
            if not failed or (self._failed[node] >= PATIENCE and node not in self._met):
                self._refuse(node, str(reason))
            elif self._failed[node] <= PATIENCE:  # of whom it served before nobody has said otherwise
                log.error("node %d failed to introduce itself: %.300s", node, reason)

    def _refuse(self, node: int, reason: str) -> None:
        """Leave a node alone, and tell it why: its operator may never see the server's log."""
        self._refused.add(node)
        log.error("node %d is refused: %.300s", node, reason)
        self.post.send([_query(node, refused=reason[:300])], OPEN)

    def settle(self, least: int, last: bool = False) -> None:
        """Let what most nodes say of their data hold for all, once those who say it serve `least` clients.

        Whoever comes first may be the one that is wrong, so a single node is believed only at `last`, if nobody has come
        who says otherwise.
        """
        said = votes(self._said)
        if self.like is not None or not said:
            return
        if is_tie(said):
            if last:
                raise undecided(said)
        elif last or (len(said[0].nodes) > 1 and said[0].clients >= least):
            self.like = said[0].look
            level = logging.WARNING if len(said) > 1 else logging.INFO
            log.log(level, "what most nodes say their data look like holds for all. %s", told(said))
            self._seat()

    def _seat(self) -> None:
        """Let in those whose data look as everybody's."""
        if self.like is None:
            return
        said, self._said = self._said, {}
        for node, identity in said.items():
            if identity.look == self.like:
                self._welcome(node, identity.names)
            else:
                self._refuse(node, f"its data are {identity.look}, and this run's are {self.like}")

    def _welcome(self, node: int, names: tuple[str, ...]) -> None:
        self._met.add(node)
        self.roster.forget(node, names)
        self.newcomers = {name: at for name, at in self.newcomers.items() if name in self.roster.node}
        self.contested = {name: by for name, by in self.contested.items() if by != node}
        self._place(node, names)

    def _place(self, node: int, names: tuple[str, ...]) -> None:
        names = self._within(node, names)
        taken = self.roster.place(node, names)
        self.contested |= dict.fromkeys(taken, node)
        if taken:
            log.warning("node %d may not serve %s while another node does", node, ", ".join(taken)[:300])
        known = {*self.roster.names, *taken}
        fresh = [n for n in names if n not in known]
        self.newcomers |= dict.fromkeys(fresh, node)
        log.info("node %d serves %d clients, %d of them new", node, len(names) - len(taken), len(fresh))

    def _within(self, node: int, names: tuple[str, ...]) -> tuple[str, ...]:
        """As many of a node's clients as there is room for: names cost a node nothing, and the server memory and time."""
        known = {*self.roster.names, *self.newcomers}
        fresh = [n for n in names if n not in known]
        over = fresh[max(0, self.most - len(known)) :] if self.numbers is None else []
        if over:
            log.warning("max-clients = %d: %d clients of node %d are left out", self.most, len(over), node)
        out = set(over)
        return tuple(n for n in names if n not in out)

    def gather(self, options: Options, resumed: bool = False) -> None:
        """Wait until enough clients are there. A run that goes on needs no more of them than any of its rounds does.

        It gives the others as long to come back as at its start, so that a stop of the server changes nothing.
        """
        began = time.monotonic()
        while True:
            self.update()
            waited, enough = time.monotonic() - began, max(1, options.min_clients - len(self.roster.excluded))
            self.settle(enough, last=waited > options.wait)
            there = self.there
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
    def there(self) -> int:
        """Clients that can be asked, numbered or not."""
        return len(self.roster.available()) + sum(map(self.roster.is_up, self.newcomers.values()))

    def admit(self) -> list[str]:
        """The newcomers, numbers first and in order, so that client 10 comes after client 9. They are not numbered yet."""
        return sorted(self.newcomers, key=lambda n: (not checks.is_number(n), int(n) if checks.is_number(n) else 0, n))


def _query(node: int, **more: str) -> Letter:
    return Letter(node, "query", RecordDict({"config": ConfigRecord({"protocol": PROTOCOL, **more})}))
