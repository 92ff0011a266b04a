"""A client that keeps its losses to itself and adds noise to the model it sends."""

from collections.abc import Callable
from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from sklearn.datasets import load_digits

from fedgwc.flower import keep_losses, private_losses

app = private_losses(ClientApp())  # answers for the losses that keep_losses has kept
digits = cache(lambda: load_digits(return_X_y=True))


def net() -> torch.nn.Module:
    return torch.nn.Linear(64, 10)


def load(message: Message, context: Context) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    part, (x, y) = int(context.node_config["partition-id"]), digits()
    rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[part :: int(context.node_config["num-partitions"])]
    model = net()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    y = (torch.tensor(y)[rows] + (part % 4 == 3)) % 10  # every fourth client calls each digit by the next one's name
    return model, torch.tensor(x / 16, dtype=torch.float32)[rows], y


def local_dp(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Flower's own mod: clips the update and adds Gaussian noise. epsilon = 0 leaves it out."""
    epsilon, clip = float(context.run_config["epsilon"]), float(context.run_config["clipping-norm"])
    if not epsilon:
        return call_next(message, context)
    return LocalDpMod(clip, clip, epsilon, 1e-5)(message, context, call_next)


# A mod of the training only: for the app as a whole LocalDpMod would refuse all messages that carry no model.
@app.train(mods=[keep_losses, local_dp])
def train(message: Message, context: Context) -> Message:
    model, x, y = load(message, context)
    optimizer, losses = torch.optim.SGD(model.parameters(), float(context.run_config["lr"])), []
    for batch in torch.randperm(len(y) // 2).split(15):  # the other half is for testing
        loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        losses.append(loss.item())
    metrics = MetricRecord({"num-examples": len(y) // 2, "losses": losses})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    model, x, y = load(message, context)
    x, y = x[len(y) // 2 :], y[len(y) // 2 :]
    metrics = MetricRecord({"num-examples": len(y), "accuracy": float((model(x).argmax(1) == y).float().mean())})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
