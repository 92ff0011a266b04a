"""The command. Nothing heavy is imported before a command that needs it runs, so that `--help` answers at once."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgwc.errors import InputError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Clustered federated learning: train one model per group of alike clients, and find the groups from their losses.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Recipe = Annotated[str | None, typer.Argument(help="A recipe's name (see `fedgwc list`) or a TOML file.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a setting: algorithm.beta=0.5")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the run; default: a new one under runs/.")]


@app.command()
def run(
    recipe: Recipe = None,
    sets: Sets = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")] = False,
) -> None:
    """Run one experiment. Without a recipe: FedAvg against FedGWC on scikit-learn's digits, in seconds."""
    from fedgwc.commands.run import run_command

    run_command(recipe, sets or [], out, resume)


@app.command()
def compare(
    recipe: Recipe = None,
    algorithms: Annotated[str, typer.Option("--algorithms", "-a", help="Comma-separated names.")] = "fedavg,fedgwc",
    seeds: Annotated[int, typer.Option("--seeds", help="Seeds 0, 1, ... for each algorithm.")] = 1,
    sets: Sets = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for all runs; default: a new one under runs/.")] = None,
) -> None:
    """Run several algorithms on the same federations and put them in one table."""
    from fedgwc.commands.compare import compare_command

    compare_command(recipe, algorithms.split(","), seeds, sets or [], out)


@app.command("list")
def list_() -> None:
    """What there is: recipes, algorithms, data sets, models."""
    from fedgwc.commands.listing import list_command

    list_command()


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if show:
        import fedgwc

        print(f"fedgwc {fedgwc.__version__}")
        raise typer.Exit


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {record.getMessage()}"


def main(argv: list[str] | None = None) -> Any:
    """Run the command. A user's mistake ends in one sentence on stderr and exit code 2, never in a traceback."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Plain())
    logging.getLogger("fedgwc").addHandler(handler)
    try:
        return app(args=argv, prog_name="fedgwc")
    except InputError as error:
        print(f"fedgwc: {error}", file=sys.stderr)
    except OSError as error:
        print(f"fedgwc: {error.filename or ''}: {error.strerror or error}".replace(": : ", ": "), file=sys.stderr)
    except KeyboardInterrupt:
        print("fedgwc: stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(2)
