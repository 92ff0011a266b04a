"""Recipes and run folders of 0.1.0: read as what they meant, or refused with both names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedgwc.algorithms import ALGORITHMS
from fedgwc.core.errors import InputError
from fedgwc.core.settings import plain
from fedgwc.io.state_file import MAGIC, OF_ANOTHER_VERSION
from fedgwc.runs.experiment import experiment, load, read_recipe
from fedgwc.runs.folder import RunFolder
from fedgwc.runs.formats import FORMAT, OLD_NAMES, current, folder_tables
from fedgwc.runs.loop import run
from tests.conftest import Small

OTHER = OF_ANOTHER_VERSION + b"7\n"
KEPT = sorted((Path(__file__).parent / "of_0_1_0").glob("*.json"))  # config.json of runs of 0.1.0
BODY = 'rounds = 3\n[data]\nname = "digits"\n[model]\nname = "mlp"\n'


def recipe(place: Path, text: str) -> Path:
    (place / "r.toml").write_text(text)
    return place / "r.toml"


@pytest.mark.parametrize("name", OLD_NAMES)
def test_a_recipe_that_names_what_has_meant_two_things_is_refused(name: str, tmp_path: Path) -> None:
    path = recipe(tmp_path, f'{BODY}[algorithm]\nname = "{name}"\n')
    both = r"auto, .*\(fedgwc until 0\.1\.0\), and fedgwc, .*\(fedgwc-paper until 0\.1\.0\).* format = 2"
    with pytest.raises(InputError, match=rf"algorithm\.name={name} .*: {both}"):
        load(path)


@pytest.mark.parametrize("name", OLD_NAMES)
def test_so_is_one_with_a_table_of_that_name(name: str, tmp_path: Path) -> None:
    path = recipe(tmp_path, f"{BODY}[{name}]\nbeta = 2.0\n")
    with pytest.raises(InputError, match=rf"\[{name}\] is of 0\.1\.0.*auto.*fedgwc-paper.*format = 2"):
        load(path)


def test_with_a_format_they_mean_what_they_say(tmp_path: Path) -> None:
    job = load(recipe(tmp_path, f'format = {FORMAT}\n{BODY}[algorithm]\nname = "fedgwc"\n[fedgwc]\nbeta = 2.0\n'))
    assert (job.algorithm_name, plain(job.algorithm)["beta"]) == ("fedgwc", 2.0)


@pytest.mark.parametrize("algorithm", ["", '[algorithm]\nname = "ifca"\nk = 3\n', "[ifca]\nk = 3\naggregator = {lr = 0.5}\n"])
def test_a_recipe_that_says_nothing_of_it_is_read(algorithm: str, tmp_path: Path) -> None:
    tables = read_recipe(recipe(tmp_path, BODY + algorithm))
    assert tables["format"] == FORMAT
    assert experiment(tables).rounds == 3


def test_what_was_called_aggregator_is_read_as_server(tmp_path: Path) -> None:
    job = load(recipe(tmp_path, f'{BODY}[algorithm]\nname = "fedavg"\n[algorithm.aggregator]\nmomentum = 0.5\n'))
    assert plain(job.algorithm)["server"]["momentum"] == 0.5


@pytest.mark.parametrize(
    "settings",
    ['[algorithm]\nname = "cfl"\nrate = 0.5\neps1 = 0.3\n', '[algorithm]\nname = "cfl"\nrate = 0.5\n[cfl]\neps1 = 0.3\n'],
)
def test_baselines_keep_the_defaults_that_they_had(settings: str, tmp_path: Path) -> None:
    path = recipe(tmp_path, BODY + settings)
    cfl = plain(load(path).algorithm)
    assert (cfl["lengths"], cfl["eps1"], cfl["eps2"], cfl["rate"]) == ("absolute", 0.3, 1.6, 0.5)
    assert plain(load(path, ["algorithm.name=ifca"]).algorithm)["starts"] == 1


@pytest.mark.parametrize("number", [3, 0, "two"])
def test_other_formats_are_refused(number: Any) -> None:
    with pytest.raises(InputError, match=f"format {number!r} is of another version of fedgwc; this one reads formats 1 and 2"):
        current({"format": number})
    with pytest.raises(InputError, match="another version of fedgwc"):
        experiment({"format": number})


def test_what_is_written_today_is_read_as_it_is(small: Small) -> None:
    tables = small("fedgwc").to_json()
    assert tables["format"] == FORMAT
    assert current(tables) == tables
    assert folder_tables(tables) == (tables, "")


# Folders


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_runs_are_read_as_what_they_were(path: Path) -> None:
    """Every setting of theirs that there still is has the value that it had."""
    written = json.loads(path.read_text())["experiment"]
    then = written["algorithm"]
    tables, note = folder_tables(written)
    job = experiment(tables)
    assert job.algorithm_name == OLD_NAMES.get(then["name"], then["name"])
    assert note == (f"written by fedgwc 0.1.0, which called this algorithm {then['name']}" if then["name"] in OLD_NAMES else "")
    now = plain(job.algorithm)
    assert {key: then[key] for key in now if key in then and key != "alpha"} == {
        key: now[key] for key in now if key in then and key != "alpha"
    }
    if "alpha" in now:
        assert now["alpha"] == {"constant": then["alpha"], "cohort": 0.0}[then["step"]]
    assert now["server"] == then["aggregator"] if "aggregator" in then else True


def test_kept_runs_are_of_most_presets() -> None:
    names = {folder_tables(json.loads(path.read_text())["experiment"])[0]["algorithm"]["name"] for path in KEPT}
    assert names >= {"alone", "fedavg", "ifca", "fesem", "fedgwc", "fedgwc-release", "auto"}
    assert names <= set(ALGORITHMS)


OF_THE_TEXT = {"when": "mse", "mse_average": True, "failure_resets_mse": True, "after_split": "keep"}
OURS = next(path for path in KEPT if json.loads(path.read_text())["experiment"]["algorithm"]["name"] == "fedgwc")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"when": "visits"}, "the run has fedgwc with when=visits, which only fedgwc 0.1.0 knows; read it with that version"),
        ({"loss_samples": 20}, "fedgwc with loss_samples=20, which only fedgwc 0.1.0 knows"),
        ({**OF_THE_TEXT, "step": "1/n"}, "when=mse and step=1/n, which only fedgwc 0.1.0 knows"),
    ],
    ids=str,
)
def test_rules_that_are_gone_are_refused_with_their_version(change: dict[str, Any], message: str) -> None:
    written = json.loads(OURS.read_text())["experiment"]
    with pytest.raises(InputError, match=message):
        folder_tables({**written, "algorithm": {**written["algorithm"], **change}})


def aged(folder: Path, **algorithm: Any) -> None:
    """Make a folder look as if 0.1.0 had written it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["experiment"]["format"]
    config["experiment"]["algorithm"] = algorithm
    path.write_text(json.dumps(config))


def test_a_folder_of_an_earlier_version_is_told_of_once(small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(small("auto", rounds=2), tmp_path)
    aged(tmp_path, **json.loads(OURS.read_text())["experiment"]["algorithm"])
    with caplog.at_level("WARNING", "fedgwc"):
        for _ in range(3):
            config = RunFolder(tmp_path).config()
    assert experiment(config["experiment"]).algorithm_name == "auto"
    assert caplog.text.count("written by fedgwc 0.1.0, which called this algorithm fedgwc") == 1


def test_a_checkpoint_of_another_version_says_so(small: Small, tmp_path: Path) -> None:
    """Its states had other parts. The folder stays as it is."""
    run(small("fedavg", rounds=4), tmp_path)
    for path in (tmp_path / "state").iterdir():
        path.write_bytes(OTHER + path.read_bytes()[len(MAGIC) :])
    with pytest.raises(
        InputError, match=r"another version of fedgwc wrote it, which config\.json names; finish the run with that one"
    ):
        run(None, tmp_path, resume=True)
    assert all(path.read_bytes().startswith(OTHER) for path in (tmp_path / "state").iterdir())
