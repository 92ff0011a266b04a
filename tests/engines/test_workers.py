"""Worker processes, seen from inside."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
    done = subprocess.run([sys.executable, "-c", FAULTS, which], capture_output=True, text=True, check=False)
    if "no mallopt" in done.stderr:
        pytest.skip("the C library has no mallopt")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_memory_that_a_step_freed_is_there_for_the_next() -> None:
    """Ten steps of 61 MiB: 156,000 pages where they are given back in between."""
    assert faults("kept") < 1_000 < faults("given back")
