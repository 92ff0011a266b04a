"""Clustering over clients whose losses it never sees and whose models are noisy."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedgwc.flower import Options, Strategy
from privacy.client_app import net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, n_rounds = context.run_config, int(context.run_config["num-server-rounds"])
    options = Options(min_clients=int(config["min-clients"]), private_losses=True)
    strategy = Strategy(rate=1.0, options=options)
    result = strategy.start(grid, ArrayRecord(net().state_dict()), n_rounds, float(config["round-timeout"]))
    accuracy = result.evaluate_metrics_clientapp[n_rounds]["accuracy"]
    print(f"accuracy {100 * accuracy:.1f} %, clusters:", {name: int(row) for name, row in sorted(strategy.labels.items())})
