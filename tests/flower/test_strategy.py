"""Clustering for people who already have a Flower app."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Result
from torch import nn

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.errors import InputError
from fedgwc.flower import Options, Strategy
from fedgwc.flower.node_tracker import NodeTracker
from fedgwc.flower.state_dicts import StateDictWire
from fedgwc.runs.folder import RunFolder

from .grids import LocalGrid
from .worlds import QUICK

EXAMPLES = Path(__file__).parents[2] / "examples"
SHIFTED = {"node-4", "node-8", "node-12"}  # in both examples


@contextmanager
def example(name: str, package: str) -> Iterator[tuple[ServerApp, LocalGrid, Context]]:
    """Put an example's server, its twelve clients on a grid, and its settings at hand."""
    folder = EXAMPLES / name
    config = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    grid = LocalGrid()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        client, server = (import_module(f"{package}.{part}_app").app for part in ("client", "server"))
        for part in range(12):
            grid.add(part + 1, client, partition_id=part, num_partitions=12)
            grid.nodes[part + 1][1].run_config = config
        yield server, grid, Context(1, 1, {}, RecordDict(), config)
    for module in [m for m in sys.modules if m.split(".")[0] == package]:
        del sys.modules[module]


def test_the_example_is_short() -> None:
    lines = [p.read_text().splitlines() for p in (EXAMPLES / "flower_quickstart" / "quickstart").glob("*.py")]
    assert sum(map(len, lines)) <= 60


@pytest.mark.parametrize(
    ("options", "timeout", "used"), [(None, {}, 3600), (Options(deadline=60), {}, 60), (Options(deadline=60), {"timeout": 5}, 5)]
)
def test_how_long_a_round_may_take(
    options: Options | None, timeout: dict[str, Any], used: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def gather(self: NodeTracker, options: Options, resumed: bool) -> None:
        seen.append(options.deadline)
        raise InputError("nobody came")

    monkeypatch.setattr(NodeTracker, "gather", gather)
    with pytest.raises(InputError, match="nobody came"):
        Strategy(options=options).start(LocalGrid(), ArrayRecord(nn.Linear(1, 1).state_dict()), **timeout)
    assert seen == [used]


def second_cluster(text: str) -> set[str]:
    """Read the clients of the second of two clusters from what an example prints."""
    labels = json.loads(text[text.index("{") :].replace("'", '"'))
    return {name for name, row in labels.items() if row == 1}


def test_the_example_finds_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with example("flower_quickstart", "quickstart") as (server, grid, context):
        torch.manual_seed(0)
        server(grid, context)
    assert second_cluster(capsys.readouterr().out) == SHIFTED


def test_the_privacy_example_finds_the_groups_from_noisy_models_and_no_losses(capsys: pytest.CaptureFixture[str]) -> None:
    replies: list[Message] = []

    def keep(_: Message, reply: Message) -> Message:
        replies.append(reply)
        return reply

    with example("flower_privacy", "privacy") as (server, grid, context):
        grid.spoil = dict.fromkeys(grid.nodes, keep)
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 - Flower's noise comes from there
        server(grid, context)
    out = capsys.readouterr().out
    assert second_cluster(out) == SHIFTED
    assert 80 < float(out.split("accuracy ")[-1].split(" %")[0]) < 89  # 90 to 91 without noise
    assert not any("losses" in record for m in replies if m.has_content() for record in m.content.metric_records.values())


class Net(nn.Module):
    """With running statistics and a counter, as real networks have."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.layer = nn.Linear(3, 2)


def shifting(by: float, losses: list[float]) -> ClientApp:
    """A client that adds a constant to every weight: the mean can be done in the head."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        state = message.content.array_records["arrays"].to_torch_state_dict()
        assert message.content["config"]["flavour"] == "sweet"
        moved = {k: v + by if v.is_floating_point() else v + 1 for k, v in state.items()}
        metrics = MetricRecord({"num-examples": 10, "losses": losses})
        return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 10, "eval_acc": by})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        record = ConfigRecord({"client-id": f"client-{context.node_config['name']}"})
        return Message(RecordDict({"about": record}), reply_to=message)

    return app


def grid_of(shifts: list[float]) -> LocalGrid:
    grid = LocalGrid()
    for i, by in enumerate(shifts):
        grid.add(i + 1, shifting(by, [1.0 + i, 0.5]), name=i)
    return grid


def start(strategy: Strategy, grid: LocalGrid, rounds: int = 2, **more: Any) -> Result:
    return strategy.start(grid, ArrayRecord(Net().state_dict()), rounds, 0.5, ConfigRecord({"flavour": "sweet"}), **more)


def test_the_mean_of_what_clients_sent() -> None:
    torch.manual_seed(0)
    first = Net().state_dict()
    torch.manual_seed(0)
    strategy = Strategy(rate=1.0, options=Options(min_clients=4, **QUICK))
    result = start(strategy, grid_of([0.0, 1.0, 2.0, 5.0]))
    for name, value in result.arrays.to_torch_state_dict().items():  # two rounds of a mean shift of 2
        expected = first[name] + 4 if value.is_floating_point() else first[name]
        torch.testing.assert_close(value, expected)
    assert strategy.labels == {f"client-{i}": 0 for i in range(4)}
    assert result.evaluate_metrics_clientapp[2] == MetricRecord({"eval_acc": 2.0, "num-examples": 40})
    assert result.train_metrics_clientapp[1]["train_loss"] == np.mean([0.75, 1.25, 1.75, 2.25])


def test_every_cluster_is_evaluated_at_the_server() -> None:
    strategy = Strategy(rate=1.0, options=Options(min_clients=4, **QUICK))
    seen = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append((number, sorted(arrays)))
        return MetricRecord({"acc": 0.5})

    result = start(strategy, grid_of([0.0, 1.0, 2.0, 5.0]), evaluate_fn=evaluate)
    assert [n for n, _ in seen] == [0, 1, 2]  # the initial model too, as with Flower's own strategies
    assert result.evaluate_metrics_serverapp[2] == MetricRecord({"cluster-0.acc": 0.5})


def test_what_evaluates_at_the_server_may_return_numbers_of_any_make() -> None:
    strategy, grid = Strategy(rate=1.0, options=Options(min_clients=4, **QUICK)), grid_of([0.0, 1.0, 2.0, 5.0])
    made = {"acc": np.float32(0.5), "loss": torch.tensor(2.0), "n": 3, "each": [0.5, 1.0]}
    result = start(strategy, grid, rounds=1, evaluate_fn=lambda *_: made)
    told = MetricRecord({"cluster-0.acc": 0.5, "cluster-0.loss": 2.0, "cluster-0.n": 3, "cluster-0.each": [0.5, 1.0]})
    assert result.evaluate_metrics_serverapp == {0: told, 1: told}
    grid.seen.clear()
    with pytest.raises(InputError, match="evaluate_fn must return numbers, or lists of them; acc is 'high'"):
        start(strategy, grid, rounds=1, evaluate_fn=lambda *_: {"acc": "high"})
    assert all(m.metadata.message_type == "query" for m in grid.seen)  # nobody trained in vain


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        ({"eval_acc": 1e308}, {"eval_acc": 1.0, "num-examples": 30}),  # no number at the models' precision: dropped whole
        ({"eval_acc": 1e30}, {"eval_acc": 1.0, "num-examples": 40}),
        ({"num-examples": 10**9}, {"eval_acc": (10 * 3 + 100 * 5) / 130, "num-examples": 130}),  # 10 times the median weight
        ({f"k{i}": 1.0 for i in range(1000)}, {"eval_acc": 2.0, "num-examples": 40}),
    ],
    ids=["no number", "far", "heavy", "wordy"],
)
def test_no_client_owns_the_final_metrics(lie: dict[str, Any], found: dict[str, float], caplog: pytest.LogCaptureFixture) -> None:
    grid = grid_of([0.0, 1.0, 2.0, 5.0])

    def change(question: Message, reply: Message) -> Message:
        if question.metadata.message_type == "evaluate":
            reply.content.metric_records["metrics"].update(lie)
        return reply

    grid.spoil[4] = change
    result = start(Strategy(rate=1.0, options=Options(min_clients=4, **QUICK)), grid, rounds=1)
    assert dict(result.evaluate_metrics_clientapp[1]) == pytest.approx(found)
    assert "client-3" in caplog.text or "left out 1000 test metrics" in caplog.text


def test_an_introduction_that_fails_makes_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    """From the start the query of node 4 fails; that of node 3 does later on, when its training fails too."""
    caplog.set_level("INFO", "fedgwc")
    grid, broken = grid_of([0.0, 1.0, 2.0, 5.0, 2.0]), {4}
    error = Error(2, "<class 'OSError'>:<'disk is away'>")
    for node in (3, 4):
        grid.spoil[node] = lambda q, reply: (
            Message(error, reply_to=q) if q.metadata.dst_node_id in broken and q.metadata.message_type != "evaluate" else reply
        )

    def evaluate(number: int, _: ArrayRecord) -> None:
        broken.clear() if number == 6 else broken.add(3)

    strategy = Strategy(rate=1.0, options=Options(min_clients=4, **QUICK))
    start(strategy, grid, rounds=7, evaluate_fn=evaluate)
    assert set(strategy.labels) == {"client-0", "client-1", "client-2", "client-4"}
    assert "node 4 is refused: <class 'OSError'>:<'disk is away'>" in caplog.text
    assert "node 3 is refused" not in caplog.text
    assert "round 7 of 7: 4 answers" in caplog.text


def test_no_client_owns_the_reported_training_loss() -> None:
    grid = grid_of([0.0, 1.0, 2.0])
    grid.add(4, shifting(5.0, [1e6, 1e6]), name=3)
    result = start(Strategy(rate=1.0, options=Options(min_clients=4, **QUICK)), grid, rounds=1)
    assert result.train_metrics_clientapp[1]["train_loss"] == 1.5  # means 0.75, 1.25, 1.75 and 1e6


def test_a_reply_without_losses_is_dropped_and_named(caplog: pytest.LogCaptureFixture) -> None:
    grid = grid_of([0.0, 1.0, 2.0, 5.0])

    def without(question: Message, reply: Message) -> Message:
        if question.metadata.message_type == "train":
            del reply.content.metric_records["metrics"]["losses"]
        return reply

    grid.spoil[4] = without
    start(Strategy(rate=1.0, options=Options(min_clients=4, **QUICK)), grid, rounds=1)
    assert "dropped the reply of client client-3 (1 in a row): losses must be a list" in caplog.text


def test_a_killed_server_goes_on_from_its_folder(tmp_path: Path) -> None:
    grid = grid_of([0.0, 1.0, 2.0, 5.0])
    torch.manual_seed(0)
    begun = Strategy(rate=1.0, out=tmp_path / "r", options=Options(min_clients=4, **QUICK))
    one = start(begun, grid, rounds=1).arrays.to_torch_state_dict()
    again = Strategy(rate=1.0, out=tmp_path / "r", options=Options(min_clients=4, **QUICK))
    result = start(again, grid, rounds=3)
    assert list(result.train_metrics_clientapp) == [2, 3]
    torch.testing.assert_close(result.arrays.to_torch_state_dict()["layer.weight"], one["layer.weight"] + 4)
    rows = RunFolder(tmp_path / "r").metrics()
    assert [row["client_updates"] for row in rows] == [4, 8, 12]  # what it cost before the kill counts
    assert 0 < rows[0]["seconds"] <= rows[1]["seconds"] <= rows[2]["seconds"]
    other = Strategy(rate=0.5, out=tmp_path / "r", options=Options(min_clients=4, **QUICK))
    with pytest.raises(InputError, match="other settings"):
        start(other, grid)


def test_running_statistics_come_after_the_parameters() -> None:
    state = Net().state_dict()
    wire = StateDictWire.of(ArrayRecord(state), {})
    assert wire.n_params == 3 + 3 + 6 + 2
    assert [e.name for e in wire.entries][-2:] == ["norm.running_mean", "norm.running_var"]
    back = wire.arrays(wire.vector(ArrayRecord(state))).to_torch_state_dict()
    assert list(back) == list(state)
    for name in state:
        torch.testing.assert_close(back[name], state[name])


def test_a_late_joiner_trains_every_model_once_to_find_its_own() -> None:
    """The client's losses tell: low where it was sent the model that suits it."""
    model = torch.zeros(2, 4)
    model[1] += 1
    wire = StateDictWire.of(ArrayRecord({"w": torch.zeros(4)}), {})
    from fedgwc.flower.wire import Task

    questions = wire.evaluate([Task(0, "a", 0), Task(0, "a", 1)], model, "train", 1)
    assert [q.kind for q in questions] == ["train", "train"]
    assert [q.content.array_records["arrays"]["w"].numpy().mean() for q in questions] == [0, 1]


def test_mistakes_are_told() -> None:
    with pytest.raises(InputError, match=r"no setting .betta.*did you mean beta"):
        Strategy("fedgwc", betta=1.0)
    with pytest.raises(InputError, match="several initial models"):
        Strategy(ALGORITHMS["ifca"])
    with pytest.raises(InputError, match="no floating-point array"):
        StateDictWire.of(ArrayRecord({"n": torch.zeros(2, dtype=torch.int64)}), {})
    with pytest.raises(NotImplementedError, match="call start"):
        Strategy().configure_train()
