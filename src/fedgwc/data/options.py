"""Settings that several data sets share, with their explanations."""

from __future__ import annotations

from typing import Annotated

from fedgwc.data.groups import Group

Seed = Annotated[int, "fixes the federation across runs: who has which samples, and which are for testing"]
Root = Annotated[str | None, "folder with the files; unset: $FEDGWC_DATA, else ~/.cache/fedgwc"]
Groups = Annotated[tuple[Group, ...], "clients that are alike; see the settings of a group"]
TrainSize = Annotated[int, "training samples per client; their mean, where a partition decides the sizes"]
TestSize = Annotated[int, "test samples per client"]
MinImages = Annotated[int, "who has fewer images is left out"]
TestShare = Annotated[float, "share of each client's samples that is held out for testing, where nothing else says which"]
Augment = Annotated[bool, "crop and flip images in training"]
