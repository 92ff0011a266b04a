"""Engines: where clients train."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedgwc.core.protocols import Engine
from fedgwc.core.tables import Table
from fedgwc.core.work import LocalTraining
from fedgwc.engines.settings import EngineSettings

if TYPE_CHECKING:
    from torch import nn

    from fedgwc.data.federation import Federation

    BuildEngine = Callable[[Federation, nn.Module, LocalTraining, EngineSettings], Engine]


def simulator(federation: Federation, module: nn.Module, local: LocalTraining, settings: EngineSettings) -> Engine:
    """Build the simulator; loaded only now, since many who read a run never train."""
    from fedgwc.engines.simulator import Simulator

    return Simulator(federation, module, local, settings)


ENGINES: Table[BuildEngine] = Table("engine", "fedgwc.engines", {"simulator": simulator})
