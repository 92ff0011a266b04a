"""Worker processes, seen from inside."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedgwc.core.errors import InputError
from fedgwc.core.work import LocalTraining
from fedgwc.data import Federation, Rows
from fedgwc.engines.simulator import EngineSettings, Simulator

FAULTS = """
import ctypes, resource, sys
import torch
from fedgwc.engines.workers import _keep_freed_memory

if not hasattr(ctypes.CDLL(None), "mallopt"):
    sys.exit("no mallopt")
if sys.argv[1] == "kept":
    _keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    return [torch.zeros(n << 18) for n in (40, 1, 20)]  # MiB

for _ in range(10):  # the heap finds its size
    step()
before = faults()
for _ in range(10):
    step()
print(faults() - before)
"""


def faults(which: str) -> int:
    # As the C library starts; it adapts these to what was freed before, and imports free this and that.
    env = os.environ | {"MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run([sys.executable, "-c", FAULTS, which], capture_output=True, text=True, check=False, env=env)
    if "no mallopt" in done.stderr:
        pytest.skip("the C library has no mallopt")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_memory_that_a_step_freed_is_there_for_the_next() -> None:
    """Ten steps of 61 MiB: 156,000 pages where they are given back in between."""
    assert faults("kept") < 1_000 < faults("given back")


class Album:
    """Twelve samples, of which the last cannot be read."""

    shape, dtype, ndim = torch.Size((12, 4)), torch.float32, 2

    def __len__(self) -> int:
        return 12

    def __getitem__(self, rows: Tensor) -> Tensor:
        if (torch.as_tensor(rows) == 11).any():
            raise InputError("there is no image 11.jpg; add it and run again")
        return torch.ones(*torch.as_tensor(rows).shape, 4)

    def to(self, device: torch.device) -> Album:
        return self


@pytest.mark.parametrize("how", ["workers", "one-by-one", "stacked"])
def test_samples_that_cannot_be_read_end_the_run_and_no_worker_is_lost(how: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = Rows.of(list(np.arange(12).reshape(3, 4)))
    engine = Simulator(
        Federation(Album(), torch.arange(12) % 2, rows, rows, 2),
        nn.Linear(4, 2),
        LocalTraining(steps=2, batch=4),
        EngineSettings(device="cpu", how=how, workers=2),  # type: ignore[arg-type]
    )
    models = engine.model.vector()[None]
    for cohort in ([2, 0, 1], [0, 1, 2]):
        with pytest.raises(InputError, match=r"no image 11\.jpg"):
            engine.train(np.array(cohort), models, np.zeros(3, np.int64), 1)
        assert engine.train(np.array([0, 1]), models, np.zeros(2, np.int64), 1).clients.tolist() == [0, 1]
    with pytest.raises(InputError, match=r"no image 11\.jpg"):
        engine.evaluate(np.arange(3), models, np.zeros(3, np.int64))
    assert engine.how == how
    assert not caplog.records


def test_workers_after_a_gpu_was_used_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked then, every one would die in its first gradient."""
    rows = Rows.of(list(np.arange(8).reshape(2, 4)))
    engine = Simulator(
        Federation(torch.ones(8, 4), torch.arange(8) % 2, rows, rows, 2),
        nn.Linear(4, 2),
        LocalTraining(steps=1, batch=4),
        EngineSettings(device="cpu", how="workers", workers=2),
    )
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(InputError, match="this process has used a GPU"):
        engine.train(np.array([0, 1]), engine.model.vector()[None], np.zeros(2, np.int64), 1)
