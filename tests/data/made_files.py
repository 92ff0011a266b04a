"""What tests of readers need beyond the package's own made data."""

from __future__ import annotations

import tarfile
from pathlib import Path

COUNTS = (10, 4)  # train and test images of a made CIFAR


def packed(folder: Path, archive: Path, extra: tarfile.TarInfo | None = None) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        if extra:
            tar.addfile(extra)
        tar.add(folder, folder.name)
    return archive
