"""Letters to nodes and their replies: one exchange with a deadline, and questions that may stay open for a while."""

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
Pull = Future[tuple[Reply | None, int]]  # with its bytes

GRACE = 2.0  # seconds past the deadline in which an expired message may still be reported as such
AWAY = (3, 4, 5)  # Flower's error codes for a message or reply that is unavailable, and for a node that is
LONGEST_REASON = 300  # characters
LOOK_AROUND = 3.0  # seconds between questions which nodes are still connected
AT_ONCE = 16  # replies that are fetched side by side, besides those that take long
PROMPT = 1.0  # seconds in which a reply is here that nothing holds up


@dataclass(frozen=True)
class Letter:
    """One message to one node."""

    node: int
    kind: str  # train, evaluate or query
    content: RecordDict


class Post:
    """Sends and collects over a Flower grid. A reply that cannot even be unpacked is `Invalid`."""

    def __init__(self, grid: Grid, poll: float = 0.2) -> None:
        self.grid, self.poll = grid, poll
        self.bytes_down = self.bytes_up = 0
        self._pulls: dict[str, Pull] = {}  # by message: looks into the mailbox that are not over yet
        self._late: dict[int, Pull] = {}  # by node: a reply that was still on its way at the deadline

    def nodes(self) -> set[int]:
        return set(self.grid.get_node_ids())

    def send(self, letters: Sequence[Letter], ttl: float, group: str = "") -> list[str]:
        """The messages' ids, in order; an empty id: it could not be sent."""
        messages = [Message(x.content, x.node, x.kind, ttl=ttl, group_id=group) for x in letters]
        if not messages:
            return []
        self.bytes_down += sum(size_of(x.content) for x in letters)
        ids = [i or "" for i in self.grid.push_messages(messages)]
        return ids if len(ids) == len(letters) else [""] * len(letters)

    def collect(self, ids: Iterable[str]) -> dict[str, Reply]:
        """What has arrived for these messages so far, by the message that it answers (an error names no sender).

        Flower announces a reply before its sender has uploaded it, and fetching it then takes until that is done, or for hours
        if it never is. So each is fetched in a thread of its own, and what takes long is left to a later look.
        """
        wanted = dict.fromkeys(ids)
        self._pulls = {i: pull for i, pull in self._pulls.items() if i in wanted}
        new = [i for i in wanted if i not in self._pulls]
        for at in range(0, len(new), AT_ONCE):
            begun = {i: self._begin(i) for i in new[at : at + AT_ONCE]}
            self._pulls |= begun
            wait(begun.values(), PROMPT)
        done = {i: pull.result() for i, pull in self._pulls.items() if pull.done()}
        self._pulls = {i: pull for i, pull in self._pulls.items() if i not in done}
        self.bytes_up += sum(size for _, size in done.values())
        return {i: reply for i, (reply, _) in done.items() if reply is not None}

    def _begin(self, i: str) -> Pull:
        pull: Pull = Future()

        def work() -> None:
            try:
                pull.set_result(self._pull(i))
            except BaseException as error:  # for whoever collects it
                pull.set_exception(error)

        Thread(target=work, name=f"reply to {i}", daemon=True).start()  # no executor: its threads would hold up the app's end
        return pull

    def _pull(self, i: str) -> tuple[Reply | None, int]:
        # One at a time: whatever is pulled counts as delivered, so an unreadable reply would take others with it.
        try:
            reply = next(iter(self.grid.pull_messages([i])), None)
            return reply, size_of(reply.content) if reply is not None and reply.has_content() else 0
        except UNREADABLE as error:
            return Invalid(f"it cannot be unpacked: {error!r:.200}"), 0

    def exchange(self, letters: Sequence[Letter], deadline: float, group: str = "") -> list[Reply | None]:
        """The reply to each letter; None: it did not come in time, or the node left or still uploads an earlier reply."""
        self._late = {node: pull for node, pull in self._late.items() if not pull.done()}
        asked = [k for k, letter in enumerate(letters) if letter.node not in self._late]
        ids = self.send([letters[k] for k in asked], deadline, group)
        waiting = {i: k for k, i in zip(asked, ids, strict=True) if i}
        replies: list[Reply | None] = [None] * len(letters)
        until, look = time.monotonic() + deadline + GRACE, time.monotonic() + LOOK_AROUND
        while waiting and time.monotonic() < until:
            for i, reply in self.collect(waiting).items():
                if i in waiting:
                    replies[waiting.pop(i)] = reply
            if waiting and time.monotonic() >= look:
                here, look = self.nodes(), time.monotonic() + LOOK_AROUND
                waiting = {i: k for i, k in waiting.items() if letters[k].node in here}
            if waiting:
                time.sleep(self.poll)
        self._late |= {letters[k].node: self._pulls[i] for i, k in waiting.items() if i in self._pulls}
        return replies


def reason_of(error: Error) -> str:
    """What a node gives as its reason, in one line: all of a message, of a traceback the exception; its code if that is blank."""
    lines = (error.reason or "").splitlines()
    frames = [k for k, line in enumerate(lines) if line.startswith("Traceback ")]
    if frames:
        lines = [line for line in lines[frames[-1] + 1 :] if not line.startswith(" ")]
    return " ".join(" ".join(lines).split())[:LONGEST_REASON] or f"code {error.code}"


def is_away(reply: Reply | None) -> bool:
    """Nobody answered: no reply, or an error that the SuperLink wrote in the node's place."""
    return reply is None or (isinstance(reply, Message) and reply.has_error() and reply.error.code in AWAY)


def size_of(content: RecordDict) -> int:
    """Bytes of all records, as Flower counts them."""
    arrays = sum(record.count_bytes() for record in content.array_records.values())
    metrics = sum(record.count_bytes() for record in content.metric_records.values())
    return arrays + metrics + sum(record.count_bytes() for record in content.config_records.values())
