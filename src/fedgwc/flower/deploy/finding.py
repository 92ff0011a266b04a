"""A result of `fedgwc deploy check`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    ok: bool
    detail: str = ""
    warning: bool = False  # allowed, and still to be read

    @property
    def verdict(self) -> str:
        return "WARNING" if self.ok and self.warning else "ok" if self.ok else "WRONG"
