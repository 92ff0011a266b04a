"""`fedgwc data`: what is missing, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

from fedgwc.data.sources.catalogue import SOURCES
from tests.cli.conftest import Command, refused


def test_data_ls_says_what_is_missing_and_what_to_do(fedgwc: Command, tmp_path: Path) -> None:
    answer = fedgwc("data", "ls", "--root", tmp_path)
    assert answer.code == 0, answer.err
    assert re.search(r"^digits +ready", answer.out, re.M)
    for name in SOURCES:
        assert re.search(rf"^{name} +missing", answer.out, re.M)
        assert re.search(rf"^({name} needs |  fedgwc data prepare {name} --root )", answer.out, re.M)
    assert f"  fedgwc data prepare cifar10 --root {tmp_path}\n" in answer.out
    assert "leaf_femnist needs train/*.json" in answer.out
    assert str(tmp_path) in answer.out
    assert list(tmp_path.iterdir()) == []  # looking writes nothing


def test_data_mistakes(fedgwc: Command, tmp_path: Path) -> None:
    refused(fedgwc("data", "verify", "cifar1000", "--root", tmp_path), "choose from")
    refused(fedgwc("data", "verify", "cifar10", "--root", tmp_path), "cifar10")
    for command in ("prepare", "verify"):
        refused(fedgwc("data", command, "digits", "--root", tmp_path), "digits ships with scikit-learn")
