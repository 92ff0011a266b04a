"""The command. Nothing heavy is imported before a command that needs it runs, so that `--help` answers at once."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgwc.cli.help import described, every_command
from fedgwc.core.errors import InputError, os_error_text
from fedgwc.runs.interrupt import exit_when_interrupted, interruptible

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Clustered federated learning: train one model per group of alike clients, and find the groups from their losses.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Recipe = Annotated[str | None, typer.Argument(help="A recipe's name (see `fedgwc list`) or a TOML file.")]
Sets = Annotated[list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a setting: local.lr=0.05")]
Scale = Annotated[
    str, typer.Option("--scale", help="full: the whole recipe; short: a tenth of its rounds; smoke: a few rounds on made data.")
]
SWEEP = "KEY=V,V,..."
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        "--budget", metavar="MEASURE=N", help="End at a cost: updates=200000; rounds, steps, samples, bytes=2G, seconds."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the run; default: a new one under runs/.")]


@app.command()
def run(
    recipe: Recipe = None,
    sets: Sets = None,
    out: Out = None,
    scale: Scale = "full",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")] = False,
    budget: Budgets = None,
    track: Annotated[
        str | None, typer.Option("--track", help="Also follow the run elsewhere: tensorboard, in RUN/tensorboard.")
    ] = None,
) -> None:
    """Run one experiment. Without a recipe: FedAvg, FedGWC and our default on scikit-learn's digits, in seconds."""
    from fedgwc.cli.run import run_command

    run_command(recipe, _with_budgets(sets, budget), out, resume, scale, track)


@app.command()
def compare(
    recipe: Recipe = None,
    algorithms: Annotated[str, typer.Option("--algorithms", "-a", help="Comma-separated names, or all.")] = "fedavg,fedgwc,auto",
    seeds: Annotated[int, typer.Option("--seeds", help="So many for each algorithm, from 0 or --set seed=N on.")] = 3,
    sets: Sets = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for all runs; default: a new one under runs/.")] = None,
    scale: Scale = "full",
    sweep: Annotated[list[str] | None, typer.Option("--sweep", metavar=SWEEP, help="Try several: ifca.k=2,3")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Runs at a time; 0: one per core, or one on a GPU.", min=0)] = 0,
    budget: Budgets = None,
    tune: Annotated[
        int, typer.Option("--tune", help="First search each algorithm's settings in so many trials, on other seeds.", min=0)
    ] = 0,
    tuned: Annotated[Path | None, typer.Option("--tuned", help="Use what `fedgwc tune` has found, the folder.")] = None,
    equal: Annotated[str | None, typer.Option("--equal", hidden=True)] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="The method that others are compared with; default: fedavg, else the first.")
    ] = None,
    metric: Annotated[str, typer.Option("--metric", help="What is compared: accuracy, balanced_accuracy, ...")] = "accuracy",
    when: Annotated[
        str, typer.Option("--when", help="last; best: the round that is best on validation; mean: of the last 10 evaluations.")
    ] = "last",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the comparison in --out; without it, the same command does so too.")
    ] = False,
) -> None:
    """Compare several algorithms on the same federations: paired differences over seeds, with intervals.

    With --sweep, of each algorithm the setting is reported that is best on validation data (everything-tried.md has all).
    Swept settings of data, model and rounds are conditions: each has its own tables. If a run fails, the others are reported;
    the same command with --out FOLDER goes on.
    """
    from fedgwc.cli.compare import compare_command
    from fedgwc.comparison.scoring import Scoring

    if equal is not None:
        raise InputError("--equal is --budget now: write --budget updates=N; FedAvg trains N = rounds x rate x clients of them")
    names, sets, scoring = _names(algorithms), _with_budgets(sets, budget), Scoring(metric, when)
    if tune and (sweep or tuned):
        raise InputError("--tune searches settings anew, and --sweep or --tuned says which they are; take one of them")
    if tune:
        from fedgwc.cli.tune import tuned_for_comparison

        sets, out = tuned_for_comparison(recipe, names, tune, seeds, sets, out, scale, jobs)
    if tuned:
        from fedgwc.cli.tune import with_tuned

        sets = with_tuned(tuned, names, sets)
    compare_command(recipe, names, seeds, sets, out, scale, sweep or [], jobs, reference, scoring, resume)


@app.command()
def tune(
    recipe: Recipe = None,
    algorithms: Annotated[str, typer.Option("--algorithms", "-a", help="Comma-separated names, or all.")] = "fedavg,fedgwc,auto",
    trials: Annotated[int, typer.Option("--trials", help="So many for each algorithm; the first has the defaults.")] = 20,
    seeds: Annotated[int, typer.Option("--seeds", help="So many for each trial, from 10,000 on.")] = 2,
    sets: Sets = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the trials; default: a new one under runs/.")] = None,
    scale: Scale = "full",
    space: Annotated[
        list[str] | None,
        typer.Option("--space", metavar="KEY=SPACE", help="Search this: ifca.k=2..8, local.lr=log:0.01..1, fesem.start=a,b."),
    ] = None,
    budget: Budgets = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Trials at a time; 0: one per core, or one on a GPU.", min=0)] = 0,
) -> None:
    """Search each algorithm's own settings on validation samples, with the same number of trials for all.

    What --set gives is fixed. The same command with the same --out goes on after an interruption, or adds trials.
    """
    from fedgwc.cli.tune import tune_command

    tune_command(recipe, _names(algorithms), trials, seeds, _with_budgets(sets, budget), out, scale, space or [], jobs)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Tables and figures of the paper, or all; none: list them.")
    ] = None,
    scale: Scale = "full",
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="Seeds 0, 1, ...; default: 3 at full scale, else 1.", min=1, max=1000)
    ] = None,
    sets: Sets = None,
    presets: Annotated[
        str,
        typer.Option("--fedgwc", help="Which FedGWC: the paper's text, its release, or our own default, auto; comma-separated."),
    ] = "fedgwc,fedgwc-release",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and tables; what is there is not done again.")] = Path(
        "runs/reproduce"
    ),
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Runs at a time; 0: one per core, or one on a GPU.", min=0)] = 0,
) -> None:
    """Run a table or figure of the paper and compare: its values, ours, and a verdict. Without a name: list the names."""
    from fedgwc.cli.reproduce import reproduce_command

    reproduce_command(names or [], scale, seeds, out, sets or [], _names(presets), jobs)


def _with_budgets(sets: list[str] | None, budgets: list[str] | None) -> list[str]:
    """Return the settings with those of budgets, which win."""
    if not budgets:
        return sets or []
    from fedgwc.runs.budget import budget_settings

    return [*(sets or []), *budget_settings(budgets)]


def _names(text: str) -> list[str]:
    """Split a comma-separated list; each name counts once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


results_app = typer.Typer(no_args_is_help=True, help="Results worth keeping: small files, and the page made of them.")
app.add_typer(results_app, name="results")
Kept = Annotated[Path, typer.Option("--from", help="The folder of kept results.")]


@results_app.command("keep")
def results_keep(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs.")],
    into: Annotated[Path, typer.Option("--into", help="The folder of kept results.")] = Path("results"),
    command: Annotated[str | None, typer.Option("--command", help="How the runs were made, if they do not say.")] = None,
    commit: Annotated[str | None, typer.Option("--commit", help="The commit they were made with, if they do not say.")] = None,
    hardware: Annotated[str | None, typer.Option("--hardware", help="Where they were made, if they do not say.")] = None,
    date: Annotated[str | None, typer.Option("--date", help="When they were made, if they do not say.")] = None,
) -> None:
    """Keep the small files of a run, without machine paths, and where it comes from."""
    from fedgwc.cli.results import keep_command

    given = {"command": command, "commit": commit, "hardware": hardware, "date": date}
    keep_command(runs, into, {k: v for k, v in given.items() if v is not None})


@results_app.command("page")
def results_page(
    folder: Kept = Path("results"),
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("docs/results.md"),
    figures: Annotated[bool, typer.Option("--figures", help="Also draw the figures into figures/ beside the page.")] = False,
) -> None:
    """All tables and figures of the paper beside the kept results, with verdicts; nothing is run."""
    from fedgwc.cli.results import page_command

    page_command(folder, out, figures)


@app.command()
def replay(
    trace: Annotated[Path, typer.Argument(help="A run folder or an npz file with recorded losses.")],
    sets: Sets = None,
    sweep: Annotated[list[str] | None, typer.Option("--sweep", metavar=SWEEP, help="Try several: algorithm.visits=1,2")] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Only the first so many rounds.", min=1)] = None,
    export: Annotated[Path | None, typer.Option("--export", help="Also write the trace as one npz file.")] = None,
) -> None:
    """Cluster recorded losses again under other settings, in seconds and without training."""
    from fedgwc.cli.replay import replay_command

    replay_command(trace, sets or [], sweep or [], rounds, export)


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs; one that holds runs stands for them.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option("--figures", help="Folder for all figures as PNG and SVG files.")] = None,
) -> None:
    """One self-contained page: what one run did, or how several compare."""
    from fedgwc.cli.report import report_command

    report_command(runs, out, figures)


@app.command()
def score(
    counts: Annotated[Path, typer.Argument(help="csv: client, then its samples per class.")],
    labels: Annotated[Path, typer.Argument(help="csv: client, cluster and, where known, the true group.")],
) -> None:
    """All clustering metrics for anybody's clusters."""
    from fedgwc.cli.score import score_command

    score_command(counts, labels)


@app.command()
def assign(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data: Annotated[Path, typer.Argument(help="npz with the new client's x and y.")],
) -> None:
    """Give a new client its cluster: the model with the lowest loss on its training data."""
    from fedgwc.cli.assign import assign_command

    assign_command(run, data)


data_app = typer.Typer(no_args_is_help=True, help="Data sets: what is there, fetch it, check it, draw who has what.")
app.add_typer(data_app, name="data")
Root = Annotated[Path | None, typer.Option("--root", help="Where data sets are; default: $FEDGWC_DATA or ~/.cache/fedgwc.")]
Size = Annotated[int, typer.Option("--size", help="Height and width of cached photographs.", min=8, max=1024)]


@data_app.command("ls")
def data_ls(root: Root = None, size: Size = 224) -> None:
    """Every data set: ready or missing, the disk it takes, and what to do."""
    from fedgwc.cli.data import ls_command

    ls_command(root, size)


@data_app.command("prepare")
def data_prepare(
    name: Annotated[str, typer.Argument(help="A name from `fedgwc data ls`.")],
    root: Root = None,
    url: Annotated[str | None, typer.Option("--url", help="Fetch from here instead of the official address.")] = None,
    size: Size = 224,
) -> None:
    """Download (resuming what broke off), check and decode a data set."""
    from fedgwc.cli.data import prepare_command

    prepare_command(name, root, url, size)


@data_app.command("verify")
def data_verify(name: Annotated[str, typer.Argument(help="A name from `fedgwc data ls`.")], root: Root = None) -> None:
    """Check a data set that is there: checksums, then its whole content."""
    from fedgwc.cli.data import verify_command

    verify_command(name, root)


@data_app.command("show")
def data_show(
    recipe: Recipe = None,
    sets: Sets = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="NAME", help="Deal the digits like this instead (see `fedgwc list`).")
    ] = None,
    clients: Annotated[int | None, typer.Option("--clients", help="With --partition: to how many clients; default 10.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write a figure: FILE.png or FILE.svg.")] = None,
) -> None:
    """Draw who has which samples: sizes, class mixes and groups of the clients. Without a recipe: of digits."""
    from fedgwc.cli.show import show_command

    show_command(recipe, sets or [], partition, clients, out)


deploy_app = typer.Typer(no_args_is_help=True, help="A real federation on Flower: set it up, check it, run it.")
app.add_typer(deploy_app, name="deploy")
Deployment = Annotated[Path, typer.Argument(help="The folder that `fedgwc deploy init` wrote.")]


@deploy_app.command("init")
def deploy_init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the app, certificates, keys and start scripts.")],
    recipe: Annotated[str, typer.Option("--recipe", help="A recipe's name or a TOML file.")] = "digits",
    host: Annotated[str, typer.Option("--host", help="The server's name or address, as nodes reach it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The server's port: who reaches it is an operator.")] = 8000,
    bind: Annotated[str, typer.Option("--bind", help="The address that the server listens on.")] = "127.0.0.1",
    node_port: Annotated[int, typer.Option("--node-port", help="The port of the proxy that nodes elsewhere connect to.")] = 8443,
    nodes: Annotated[int, typer.Option("--nodes", help="How many nodes to make keys for.")] = 3,
    own_data: Annotated[bool, typer.Option("--own-data", help="Nodes bring their own data files.")] = False,
    private: Annotated[bool, typer.Option("--private-losses", help="No client's losses leave its node.")] = False,
) -> None:
    """Write all that a federation needs, with TLS and node authentication on."""
    from fedgwc.cli.deploy import init_command

    where = {"host": host, "port": port, "bind": bind, "node_port": node_port}
    init_command(folder, recipe=recipe, nodes=nodes, own_data=own_data, private_losses=private, **where)


@deploy_app.command("check")
def deploy_check(folder: Deployment) -> None:
    """Say what is wrong before anything starts."""
    from fedgwc.cli.deploy import check_command

    check_command(folder)


@deploy_app.command("renew")
def deploy_renew(
    folder: Deployment,
    new_authority: Annotated[bool, typer.Option("--new-authority", help="ca.key is lost: all nodes will need ca.crt.")] = False,
) -> None:
    """Make a new certificate for the server, and say what to copy and to restart; keys and settings stay."""
    from fedgwc.cli.deploy import renew_command

    renew_command(folder, new_authority)


@deploy_app.command("register")
def deploy_register(folder: Deployment) -> None:
    """Make the nodes' public keys known to the running server, which refuses nodes with other keys."""
    from fedgwc.cli.deploy import register_command

    register_command(folder)


@deploy_app.command("run")
def deploy_run(folder: Deployment) -> None:
    """Train, or resume; exit with 0 only if the run was completed."""
    from fedgwc.cli.deploy import run_command as deploy_run_command

    deploy_run_command(folder)


@app.command("list")
def list_(
    name: Annotated[
        str | None, typer.Argument(help="Show its settings; also of a recipe's table: local, engine, evaluate.")
    ] = None,
) -> None:
    """List what there is: recipes, algorithms, data sets, models. With a name: what can be set of it."""
    from fedgwc.cli.listing import list_command

    list_command(name)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if show:
        import fedgwc

        print(f"fedgwc {fedgwc.__version__}")
        raise typer.Exit


# The commands that meet names of algorithms, models and data sets.
USING = ("run", "compare", "tune", "reproduce", "replay", "report", "assign", "list", "data show", "deploy init")


def _use_option() -> Any:
    from typer.core import TyperOption

    text = "Python file with algorithms, models or data sets of your own; also as $FEDGWC_USE."
    return TyperOption(param_decls=["--use"], metavar="FILE.py", multiple=True, help=text)


def _using(command: Callable[..., Any]) -> Callable[..., Any]:
    """`command`, before which the user's own code is loaded."""

    @wraps(command)
    def knowing(*args: Any, use: tuple[str, ...], **settings: Any) -> Any:
        if not use and "FEDGWC_USE" not in os.environ:  # what there is to check it against takes long to load
            return command(*args, **settings)
        from fedgwc.runs.plugins import plugins_loaded

        with plugins_loaded(use):
            return command(*args, **settings)

    return knowing


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {record.getMessage()}"


def _lacks_memory(error: MemoryError | RuntimeError) -> bool:
    """Tell whether memory ran out; PyTorch has no error of its own for that."""
    return isinstance(error, MemoryError) or re.search("allocate memory|out of memory|not enough memory", str(error)) is not None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def main(argv: list[str] | None = None) -> Any:
    """Run the command. A user's mistake ends in one sentence on stderr and exit code 2, Ctrl-C in one line and 130."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Plain())
    log = logging.getLogger("fedgwc")
    log.addHandler(handler)
    command = described(app)
    for name, each in every_command(command):
        if name in USING:
            each.params.append(_use_option())
            each.callback = _using(each.callback)
        each.callback = each.callback and exit_when_interrupted(each.callback)
    try:
        with interruptible():
            return command(args=argv, prog_name="fedgwc")
    except InputError as error:
        print(f"fedgwc: {error}", file=sys.stderr)
    except (MemoryError, RuntimeError) as error:
        if not _lacks_memory(error):
            raise
        print(f"fedgwc: memory ran out ({_first_line(error)}); ask for less at once, or use another machine", file=sys.stderr)
    except OSError as error:
        print(f"fedgwc: {os_error_text(error)}", file=sys.stderr)
    finally:
        log.removeHandler(handler)  # a program may call this more than once
    sys.exit(2)
