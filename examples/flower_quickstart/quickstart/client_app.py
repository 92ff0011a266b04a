"""A PyTorch client as any other. All it does for FedGWC is to reply with the loss of every step."""

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits

app = ClientApp()
digits = cache(lambda: load_digits(return_X_y=True))


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def load(message: Message, context: Context) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    part, (x, y) = int(context.node_config["partition-id"]), digits()
    rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[part :: int(context.node_config["num-partitions"])]
    model = net()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    y = (torch.tensor(y)[rows] + (part % 4 == 3)) % 10  # every fourth client calls each digit by the next one's name
    return model, torch.tensor(x / 16, dtype=torch.float32)[rows], y


@app.train()
def train(message: Message, context: Context) -> Message:
    model, x, y = load(message, context)
    optimizer, losses = torch.optim.SGD(model.parameters(), float(context.run_config["lr"]), momentum=0.9), []
    for _ in range(int(context.run_config["local-epochs"])):
        for batch in torch.randperm(len(y)).split(50):
            loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad(), loss.backward(), optimizer.step()
            losses.append(loss.item())
    metrics = MetricRecord({"num-examples": len(y), "losses": losses})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
