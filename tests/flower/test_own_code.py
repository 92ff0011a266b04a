"""Code of one's own goes with the app to every node; the package's core needs no Flower."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .deployed import deploy, write_recipe
from .real import free_port

pytestmark = pytest.mark.usefixtures("nobody_listens")

OWN = """
from torch import nn
from fedgwc.models import MODELS
def net(shape, n_classes, *, bias: bool = True): return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], n_classes, bias=bias))
MODELS["net"] = net
"""


def test_ones_own_code_goes_with_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands that load it run in processes of their own, as nodes and an operator's later commands do."""
    (tmp_path / "mine.py").write_text(OWN)
    write_recipe(tmp_path, model={"name": "net", "bias": False})
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own" / "app" / "fedgwc_app" / "own" / "mine.py"
    init = ["init", "own", "--recipe", "recipe.toml", "--port", str(free_port())]

    def elsewhere(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert deploy(*init) == 2
    assert "unknown model 'net'" in capsys.readouterr().err
    refused = elsewhere("-m", "fedgwc", "deploy", *init, "--use", "mine")
    assert "the app carries files to the nodes, and no installed modules; give a FILE.py" in refused.stderr
    assert not (tmp_path / "own").exists()
    made = elsewhere("-m", "fedgwc", "deploy", *init, "--use", "mine.py")
    assert made.returncode == 0, made.stderr
    assert own.read_text() == OWN

    (tmp_path / "mine.py").unlink()
    done = elsewhere("-m", "fedgwc", "deploy", "check", "own")
    assert done.returncode == 0, done.stderr
    loads = "import sys; sys.path.insert(0, 'own/app'); import fedgwc_app.client, fedgwc_app.server"
    assert elsewhere("-c", loads).returncode == 0
    own.write_text("import nowhere")
    assert deploy("check", "own") == 2
    assert "mine.py cannot be loaded: ModuleNotFoundError" in capsys.readouterr().err


def test_the_core_does_not_need_flower() -> None:
    program = (
        "import sys, fedgwc, fedgwc.cli.app, fedgwc.runs.loop\n"
        "assert not any(m.split('.')[0] == 'flwr' for m in sys.modules)\n"
        "sys.modules['flwr'] = None\n"
        "try:\n    fedgwc.flower.client_app\n"
        "except ModuleNotFoundError as e:\n    print(e)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "its extra `flower`" in done.stdout
