"""The server of the quick-start: FedAvg became Strategy."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedgwc.flower import Options, Strategy
from quickstart.client_app import net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    options = Options(min_clients=int(config["min-clients"]))
    strategy = Strategy(rate=float(config["fraction-train"]), options=options, out=str(config["out"]) or None)
    strategy.start(grid, ArrayRecord(net().state_dict()), int(config["num-server-rounds"]), float(config["round-timeout"]))
    print("clusters:", {name: int(row) for name, row in sorted(strategy.labels.items())})
