from __future__ import annotations

from pathlib import Path

import pytest
from made_files import write_cifar100


@pytest.fixture
def cifar100_folder(tmp_path: Path) -> Path:
    return write_cifar100(tmp_path / "cifar-100-python", protocol=4)
