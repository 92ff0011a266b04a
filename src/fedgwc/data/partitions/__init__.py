"""Ways to deal samples out to clients. Each sample goes to at most one client."""

from __future__ import annotations

from fedgwc.data.partitions.draws import alike, dirichlet, iid, shards

__all__ = ["alike", "dirichlet", "iid", "shards"]
