"""Messages to nodes and their replies: one exchange with a deadline, and questions that may stay open for a while."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from fedgwc.flower.checks import UNREADABLE, Invalid

Reply = Message | Invalid
Fetch = Future[tuple[Reply | None, int]]  # a reply and its bytes

GRACE = 2.0  # seconds past the deadline in which an expired message may still be reported as such
AWAY = (3, 4, 5)  # Flower's error codes for a message or reply that is unavailable, and for a node that is
LONGEST_REASON = 300  # characters
NODE_CHECK_SECONDS = 3.0  # between questions which nodes are still connected
PARALLEL_FETCHES = 16  # replies that are fetched side by side, besides those that take long
PROMPT_SECONDS = 1.0  # seconds in which a reply is fetched that nothing holds up


@dataclass(frozen=True)
class Outgoing:
    """One message to one node."""

    node: int
    kind: str  # train, evaluate or query
    content: RecordDict


class Mailbox:
    """Sends and collects messages over a Flower grid. A reply that cannot even be unpacked is `Invalid`."""

    def __init__(self, grid: Grid, poll: float = 0.2) -> None:
        self.grid, self.poll = grid, poll
        self.bytes_down = self.bytes_up = 0
        self._fetches: dict[str, Fetch] = {}  # by message: replies that are being fetched
        self._late: dict[int, Fetch] = {}  # by node: a reply that was still on its way at the deadline

    def nodes(self) -> set[int]:
        """Return the nodes that are connected now."""
        return set(self.grid.get_node_ids())

    def send(self, outgoing: Sequence[Outgoing], ttl: float, group: str = "") -> list[str]:
        """Send messages; return their ids, empty for those not sent."""
        messages = [Message(x.content, x.node, x.kind, ttl=ttl, group_id=group) for x in outgoing]
        if not messages:
            return []
        self.bytes_down += sum(content_bytes(x.content) for x in outgoing)
        ids = [i or "" for i in self.grid.push_messages(messages)]
        return ids if len(ids) == len(outgoing) else [""] * len(outgoing)

    def collect(self, ids: Iterable[str]) -> dict[str, Reply]:
        """Collect replies that have arrived, by the message they answer.

        An error names no sender. Flower announces a reply before its sender has uploaded it, and fetching it then takes until
        that is done, or for hours if it never is. So each is fetched in a thread of its own, and what takes long is left to
        a later call.
        """
        wanted = dict.fromkeys(ids)
        self._fetches = {i: fetch for i, fetch in self._fetches.items() if i in wanted}
        new = [i for i in wanted if i not in self._fetches]
        for at in range(0, len(new), PARALLEL_FETCHES):
            begun = {i: self._begin(i) for i in new[at : at + PARALLEL_FETCHES]}
            self._fetches |= begun
            wait(begun.values(), PROMPT_SECONDS)
        done = {i: fetch.result() for i, fetch in self._fetches.items() if fetch.done()}
        self._fetches = {i: fetch for i, fetch in self._fetches.items() if i not in done}
        self.bytes_up += sum(size for _, size in done.values())
        return {i: reply for i, (reply, _) in done.items() if reply is not None}

    def _begin(self, i: str) -> Fetch:
        fetch: Fetch = Future()

        def work() -> None:
            try:
                fetch.set_result(self._fetch(i))
            except BaseException as error:  # for whoever collects it
                fetch.set_exception(error)

        Thread(target=work, name=f"reply to {i}", daemon=True).start()  # no executor: its threads would hold up the app's end
        return fetch

    def _fetch(self, i: str) -> tuple[Reply | None, int]:
        # One at a time: whatever is pulled counts as delivered, so an unreadable reply would take others with it.
        try:
            reply = next(iter(self.grid.pull_messages([i])), None)
            return reply, content_bytes(reply.content) if reply is not None and reply.has_content() else 0
        except UNREADABLE as error:
            return Invalid(f"it cannot be unpacked: {error!r:.200}"), 0

    def exchange(self, outgoing: Sequence[Outgoing], deadline: float, group: str = "") -> list[Reply | None]:
        """Send messages and wait for their replies until the deadline.

        None: a reply did not come in time, or the node left or still uploads an earlier one.
        """
        self._late = {node: fetch for node, fetch in self._late.items() if not fetch.done()}
        asked = [k for k, out in enumerate(outgoing) if out.node not in self._late]
        ids = self.send([outgoing[k] for k in asked], deadline, group)
        waiting = {i: k for k, i in zip(asked, ids, strict=True) if i}
        replies: list[Reply | None] = [None] * len(outgoing)
        until, look = time.monotonic() + deadline + GRACE, time.monotonic() + NODE_CHECK_SECONDS
        while waiting and time.monotonic() < until:
            for i, reply in self.collect(waiting).items():
                if i in waiting:
                    replies[waiting.pop(i)] = reply
            if waiting and time.monotonic() >= look:
                here, look = self.nodes(), time.monotonic() + NODE_CHECK_SECONDS
                waiting = {i: k for i, k in waiting.items() if outgoing[k].node in here}
            if waiting:
                time.sleep(self.poll)
        self._late |= {outgoing[k].node: self._fetches[i] for i, k in waiting.items() if i in self._fetches}
        return replies


def error_reason(error: Error) -> str:
    """Shorten a node's error to one line.

    All of a message, of a traceback the exception, its code if the reason is blank.
    """
    lines = (error.reason or "").splitlines()
    frames = [k for k, line in enumerate(lines) if line.startswith("Traceback ")]
    if frames:
        lines = [line for line in lines[frames[-1] + 1 :] if not line.startswith(" ")]
    return " ".join(" ".join(lines).split())[:LONGEST_REASON] or f"code {error.code}"


def is_away(reply: Reply | None) -> bool:
    """Tell whether nobody answered, or the SuperLink in a node's place."""
    return reply is None or (isinstance(reply, Message) and reply.has_error() and reply.error.code in AWAY)


def content_bytes(content: RecordDict) -> int:
    """Count the bytes of all records, as Flower does."""
    arrays = sum(record.count_bytes() for record in content.array_records.values())
    metrics = sum(record.count_bytes() for record in content.metric_records.values())
    return arrays + metrics + sum(record.count_bytes() for record in content.config_records.values())
