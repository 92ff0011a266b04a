from __future__ import annotations

from pathlib import Path

import pytest

from fedgwc.data.sources.cifar import CIFAR100
from fedgwc.data.sources.synthetic import write_cifar

from .made_files import COUNTS


@pytest.fixture
def cifar100_folder(tmp_path: Path) -> Path:
    return write_cifar(CIFAR100, tmp_path / "cifar-100-python", COUNTS)
