"""A Flower grid inside this process: nodes are client apps that answer at once, or misbehave as a test tells them to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

# What Flower sets in the processes that it starts: without it no message can be made.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

Spoil = Callable[[Message, Message], Message | None]  # (question, reply) -> what arrives; None: nothing ever


class LocalGrid(Grid):
    """Nodes by id, each with its app and configuration."""

    def __init__(self) -> None:
        self.nodes: dict[int, tuple[ClientApp, Context]] = {}
        self.spoil: dict[int, Spoil] = {}
        self.seen: list[Message] = []  # every message pushed
        self._mail: dict[str, Message] = {}
        self._ids = itertools.count(1)

    def add(self, node: int, app: ClientApp, **config: Any) -> None:
        config = {k.replace("_", "-"): v for k, v in config.items()}
        self.nodes[node] = app, Context(1, node, config, RecordDict(), {})

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._push(m) for m in messages]

    def _push(self, message: Message) -> str:
        node = message.metadata.dst_node_id
        if node not in self.nodes:
            return ""
        key = f"m{next(self._ids)}"
        message.metadata.__dict__["_message_id"] = key
        self.seen.append(message)
        app, context = self.nodes[node]
        try:
            reply: Message | None = app(message, context)
        except Exception as error:
            reply = Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=message)
        if node in self.spoil and reply is not None:
            reply = self.spoil[node](message, reply)
        if reply is not None:
            self._mail[key] = reply
        return key

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._mail.pop(i) for i in list(message_ids) if i in self._mail]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        raise NotImplementedError
