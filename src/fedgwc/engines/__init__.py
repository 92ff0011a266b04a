"""Engines: where clients train."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedgwc.core.protocols import Engine
from fedgwc.core.tables import Table
from fedgwc.core.work import LocalTraining
from fedgwc.data.federation import Federation
from fedgwc.engines.settings import EngineSettings
from fedgwc.engines.simulator import Simulator

BuildEngine = Callable[[Federation, nn.Module, LocalTraining, EngineSettings], Engine]

ENGINES: Table[BuildEngine] = Table("engine", "fedgwc.engines", {"simulator": Simulator})
