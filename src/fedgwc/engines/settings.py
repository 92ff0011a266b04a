"""How a cohort is run. Nothing here changes what is computed, except `dtype`, `precision` and the rounding of sums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch

from fedgwc.core.errors import InputError

How = Literal["auto", "stacked", "one-by-one", "workers"]
MOST_THREADS = 1024  # and worker processes: systems fail at some number, and PyTorch without a word
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class EngineSettings:
    """Defaults choose for the model and machine at hand; what was chosen is written to the run's config.json."""

    device: Annotated[str, "auto (cuda where there is one), cpu or cuda"] = "auto"
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
        if self.device not in ("auto", "cpu", "cuda"):
            raise InputError(f"engine.device must be auto, cpu or cuda, got {self.device!r}")
        if min(self.chunk, self.threads, self.workers) < 0:
            raise InputError(
                f"engine.chunk, threads and workers must be >= 0 (0 is automatic), "
                f"got {self.chunk}, {self.threads} and {self.workers}"
            )
        if max(self.threads, self.workers) > MOST_THREADS:
            raise InputError(f"engine.threads and workers must be at most {MOST_THREADS}, got {self.threads} and {self.workers}")


def device_of(settings: EngineSettings) -> torch.device:
    """Asked by whoever trains; the settings of a run on a GPU can be read anywhere."""
    name = settings.device
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("engine.device is cuda, but PyTorch sees no CUDA device here; use another: --set engine.device=cpu")
    return torch.device("cuda" if name == "auto" and torch.cuda.is_available() else name.replace("auto", "cpu"))


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_determinism() -> None:
    """For the rest of the process PyTorch uses only kernels that give the same bits every time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for this before its first call
    torch.use_deterministic_algorithms(True)


@contextmanager
def running(threads: int, precision: str, device: torch.device) -> Iterator[None]:
    """PyTorch's global switches set for one call and put back after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    old = _set_precision("ieee" if precision == "float32" else "tf32") if device.type == "cuda" else None
    try:
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
