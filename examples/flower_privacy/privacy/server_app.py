"""FedGWC over clients whose losses it never sees and whose models are noisy."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedgwc.flower import FedGWCStrategy, Options
from privacy.client_app import net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    options = Options(min_clients=config["min-clients"], private_losses=True)
    strategy = FedGWCStrategy(rate=1.0, when="visits", visits=12, min_size=3, options=options)
    result = strategy.start(grid, ArrayRecord(net().state_dict()), config["num-server-rounds"], config["round-timeout"])
    accuracy = result.evaluate_metrics_clientapp[config["num-server-rounds"]]["accuracy"]
    print(f"accuracy {100 * accuracy:.1f} %, clusters:", {name: int(row) for name, row in sorted(strategy.labels.items())})
