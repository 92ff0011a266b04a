"""Settings of the engine.

None changes the results, except `dtype`, `precision` and the rounding of sums.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch

from fedgwc.core.errors import InputError

How = Literal["auto", "stacked", "one-by-one", "workers"]
MOST_THREADS = 1024  # and worker processes: systems fail at some number, and PyTorch without a word
DEVICE = re.compile(r"auto|cpu|cuda(:(0|[1-9]\d*))?")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class EngineSettings:
    """Settings of the engine; defaults depend on model and machine.

    A run's config.json holds the values that were chosen.
    """

    name: Annotated[str, "where clients train: simulator, on this machine, or an engine of your own"] = "simulator"
    device: Annotated[str, "auto (cuda where there is one), cpu, cuda, or one of several cards, cuda:0, cuda:1, ..."] = "auto"
    how: Annotated[How, "stacked in one vmap step, one client at a time, or one client per worker process"] = "auto"
    dtype: Annotated[Literal["float32", "float64"], "of models and of what is computed"] = "float32"
    precision: Annotated[Literal["float32", "tf32", "bf16"], "of products on CUDA; a CPU always computes in full"] = "tf32"
    threads: Annotated[int, "of PyTorch while clients train; 0: every core if convolutional models go one by one, else one"] = 0
    workers: Annotated[int, "processes of how=workers; 0: one per core"] = 0
    chunk: Annotated[int, "most clients stacked at once, to bound memory; 0: by the model's size, all if it is small"] = 0
    stack_random: Annotated[bool, "stack models with Dropout too; their random draws then depend on the company"] = False
    deterministic: Annotated[bool, "on CUDA: only kernels that give the same bits every time"] = False
    graphs: Annotated[bool, "on CUDA: record a cohort's whole training, and evaluation, once and replay it"] = True

    def __post_init__(self) -> None:
        if self.device.partition(":")[0] == "mps":
            raise InputError(f"engine.device={self.device} is refused: no engine has been tried on Apple's GPUs; use cpu")
        if not DEVICE.fullmatch(self.device):
            raise InputError(f"engine.device must be auto, cpu, cuda or cuda:N (cuda:1 is the second card), got {self.device!r}")
        if min(self.chunk, self.threads, self.workers) < 0:
            raise InputError(
                f"engine.chunk, threads and workers must be >= 0 (0 is automatic), "
                f"got {self.chunk}, {self.threads} and {self.workers}"
            )
        if max(self.threads, self.workers) > MOST_THREADS:
            raise InputError(f"engine.threads and workers must be at most {MOST_THREADS}, got {self.threads} and {self.workers}")


def device_of(settings: EngineSettings) -> torch.device:
    """Find the device on this machine.

    The settings of a run on a GPU can be read anywhere.
    """
    name, count = settings.device, torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if count else "cpu")
    kind, _, number = name.partition(":")
    if kind == "cuda" and int(number or 0) >= count:
        cards = f"{count} of them, cuda:0 to cuda:{count - 1}," if count > 1 else "cuda:0 only" if count else "no CUDA device"
        raise InputError(f"engine.device is {name}, but PyTorch sees {cards} here; use another: --set engine.device=cpu")
    return torch.device(name)


def cores() -> int:
    """Count the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_determinism() -> None:
    """Allow only deterministic PyTorch kernels in this process.

    They give the same bits every time.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for this before its first call
    torch.use_deterministic_algorithms(True)


@contextmanager
def running(threads: int, precision: str, device: torch.device) -> Iterator[None]:
    """Set PyTorch's global switches for one call.

    They and the current card are restored after it.
    """
    before, cuda = torch.get_num_threads(), device.type == "cuda"
    torch.set_num_threads(threads)
    old = _set_precision("ieee" if precision == "float32" else "tf32") if cuda else None
    try:
        with torch.cuda.device(device) if cuda else nullcontext():  # kernels and streams of our own go to the current card
            yield
    finally:
        torch.set_num_threads(before)
        if old is not None:
            _set_precision(*old)


def _set_precision(matmul: str, conv: str | None = None) -> tuple[str, str]:
    switches: Any = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    old = (switches[0].fp32_precision, switches[1].fp32_precision)
    switches[0].fp32_precision, switches[1].fp32_precision = matmul, conv or matmul
    return old
