"""Private losses at a node: its clients' losses stay here, and only masked sums and the clients' rewards leave it.

After a training the node holds the losses and a fresh key pair, in Flower's context of this run, which lives in the memory of
the SuperNode. Then each is asked at most once:

query.losses_sum       about each model: keys of all parties, steps of all their clients, centre, scale, records of this node
The reply:             sums   one masked array [2 words, 2 moments, S] per model
query.losses_reward    about each model: mean [S] and variance [S], and whether they are plain
The reply:             rewards  one number in [0, 1] per record
                       means    if they are, one masked array [2 words] per model: the squares of its clients' own means

The losses enter these sums and one reward and are forgotten, so nobody can ask for the same losses in two different companies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fedgwc.algorithms.fedgwc.rewards import rewards_around
from fedgwc.core.errors import InputError
from fedgwc.core.sampling import SMALLEST_COHORT
from fedgwc.flower import masking
from fedgwc.flower.moments import LARGEST, counted_steps, moments, padded, squared_means

PRIVATE = "private-losses"  # in a question's config: hide them; in a node's configuration: never answer otherwise
SUM, REWARD = "losses_sum", "losses_reward"
_SECRET, _LOSSES, _SIZES, _SUMMED, _KEYS = (f"fedgwc-{name}" for name in ("secret", "losses", "sizes", "summed", "keys"))


def private_losses(app: ClientApp) -> ClientApp:
    """Let an app answer for losses that it keeps.

    Its training is to be registered with `@app.train(mods=[keep_losses])`.
    """

    @app.query(SUM)
    def sums(message: Message, context: Context) -> Message:
        return Message(masked_sums(context.state, message.content), reply_to=message)

    @app.query(REWARD)
    def rewards(message: Message, context: Context) -> Message:
        return Message(own_rewards(context.state, message.content), reply_to=message)

    return app


def keep_losses(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Take `losses` out of a training reply; a Flower mod.

    Every metric record gets `steps` in their place, and the reply a key.
    """
    if not is_private(message, context):
        return call_next(message, context)
    reply = call_next(message, context)
    if reply.has_content():
        _keep(context.state, reply.content)
    return reply


def is_private(message: Message, context: Context) -> bool:
    """Tell whether losses stay private; refuse if the node insists."""
    asked = any(record.get(PRIVATE) is True for record in message.content.config_records.values())
    if not asked and context.node_config.get(PRIVATE):
        raise InputError(f"this node keeps its losses private; start the run with {PRIVATE} = true")
    return asked


def _keep(state: RecordDict, reply: RecordDict) -> None:
    forget(state)
    losses, sizes = MetricRecord(), MetricRecord()
    for name, record in reply.metric_records.items():
        values = record.pop("losses", None)
        if values is None:
            continue
        check_losses(cast(list[float], values))
        losses[name], sizes[name], record["steps"] = values, record["num-examples"], len(cast(list[float], values))
    secret = masking.new_secret()
    state[_LOSSES], state[_SIZES], state[_SECRET] = losses, sizes, ConfigRecord({"secret": secret})
    reply["party"] = ConfigRecord({"key": masking.public_key(secret)})


def forget(state: RecordDict) -> None:
    """Delete a round's losses and secret."""
    for name in (_SECRET, _LOSSES, _SIZES, _SUMMED, _KEYS):
        state.pop(name, None)


def check_losses(losses: Sequence[float]) -> None:
    """Refuse losses that would spoil a sum unnoticed."""
    if not len(losses) or not (np.abs(losses) <= LARGEST).all():
        raise InputError(f"private losses must be between -{LARGEST:g} and {LARGEST:g}, one per local step")


def masked_sums(state: RecordDict, content: RecordDict) -> RecordDict:
    """Return this node's masked part of every sum it is asked for."""
    if _SECRET not in state or _SUMMED in state:
        raise InputError("this node holds no losses that have not been summed yet")
    secret = cast(bytes, state.config_records[_SECRET]["secret"])
    losses, sizes = state.metric_records[_LOSSES], state.metric_records[_SIZES]
    sums, groups, parties = ArrayRecord(), ConfigRecord(), ConfigRecord()
    for model, asked in content.config_records.items():
        keys, mine = set(cast(list[bytes], asked["keys"])), cast(list[str], asked["mine"])
        steps, scale, centre = cast(list[int], asked["steps"]), cast(float, asked["scale"]), np.array(asked["centre"])
        _check_parties(keys, mine, steps, taken=[n for group in groups.values() for n in cast(list[str], group)])
        x = padded([cast(list[float], losses[name]) for name in mine], counted_steps(steps))
        weights = np.array([cast(int, sizes[name]) * scale if scale else 1.0 for name in mine])
        words = masking.encode(moments(x, weights, centre), len(keys))
        sums[model] = Array(words + masking.mask(secret, keys, purpose(model, asked), words.shape))
        groups[model], parties[model] = mine, asked["keys"]
    # Only now: a question that could not be answered revealed nothing.
    state[_SUMMED], state[_KEYS] = groups, parties
    return RecordDict({"sums": sums})


def purpose(model: str, asked: ConfigRecord) -> bytes:
    """Bind a mask to what all parties of a sum were told."""
    return json.dumps([model, *(asked[key] for key in ("steps", "centre", "scale"))]).encode()


def _check_parties(keys: set[bytes], mine: Sequence[str], steps: Sequence[int], taken: Iterable[str]) -> None:
    """Refuse a sum that could reveal a single client's losses."""
    others = len(steps) - len(mine)
    if len(set(mine)) != len(mine) or set(mine) & set(taken):
        raise InputError("a client's losses may enter one sum only")
    if len(steps) < SMALLEST_COHORT or not mine or others < len(keys) - 1 or (len(keys) == 1 and others):
        raise InputError(f"a sum over {len(steps)} clients of {len(keys)} nodes is refused: it needs {SMALLEST_COHORT} clients")


def own_rewards(state: RecordDict, content: RecordDict) -> RecordDict:
    """Return each client's reward and the node's masked sums of means."""
    groups = state.config_records.get(_SUMMED, ConfigRecord())
    rewards, means = MetricRecord(), ArrayRecord()
    for model, statistics in content.config_records.items():
        if model not in groups:
            raise InputError("this node has not been part of such a sum, or has told its rewards already")
        names = cast(list[str], groups[model])
        mean, variance = (np.array(statistics[key], np.float64) for key in ("mean", "variance"))
        if mean.shape != variance.shape or not np.isfinite([mean, variance]).all() or (variance < 0).any():
            raise InputError("mean and variance must be finite numbers, one per step, and no variance negative")
        x = padded([cast(list[float], state.metric_records[_LOSSES][n]) for n in names], len(mean))
        rewards.update(zip(names, rewards_around(x, mean, variance).tolist(), strict=True))
        if statistics.get("plain"):
            secret = cast(bytes, state.config_records[_SECRET]["secret"])
            keys = set(cast(list[bytes], state.config_records[_KEYS][model]))
            words = masking.encode(np.array(squared_means(x, mean)), len(keys))
            means[model] = Array(words + masking.mask(secret, keys, _means_purpose(model, statistics), words.shape))
    forget(state)
    return RecordDict({"rewards": rewards, "means": means})


def _means_purpose(model: str, statistics: ConfigRecord) -> bytes:
    """Bind the second mask to other words than the first."""
    return json.dumps([model, statistics["mean"], statistics["variance"]]).encode()
