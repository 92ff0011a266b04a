from __future__ import annotations

from pathlib import Path

import pytest
from made_files import COUNTS

from fedgwc.data.sources.cifar import CIFAR100
from fedgwc.data.sources.synthetic import write_cifar


@pytest.fixture
def cifar100_folder(tmp_path: Path) -> Path:
    return write_cifar(CIFAR100, tmp_path / "cifar-100-python", COUNTS)
