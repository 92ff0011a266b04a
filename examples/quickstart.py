"""Groups found by themselves: 30 clients, 8 of which code their labels differently, and nobody tells the server."""

import numpy as np
import torch

import fedgwc
from fedgwc.algorithms.auto.algorithm import Auto
from fedgwc.data import Group, digits
from fedgwc.models import mlp

federation = digits(seed=0, groups=(Group(22), Group(8, relabel=1)), train_size=40, test_size=15)
torch.manual_seed(0)
network = mlp(federation.shape, federation.n_classes)  # any nn.Module that classifies will do
engine = fedgwc.Simulator(federation, network, fedgwc.LocalTraining(steps=4, batch=16, lr=0.1))
algorithm = Auto(rate=0.3)  # everything else as in the preset "auto"

start = engine.model.vector()  # [D]: on the server a model is one vector
for number, state in fedgwc.rounds(algorithm, engine, start, federation.n_clients, 300, seed=0):
    if number % 50 == 0:
        scores = fedgwc.evaluate_clustering(algorithm.clustering(state), engine, federation)
        print(f"round {number}: accuracy {scores['accuracy']:.1%}, clusters {scores['clusters']}")

assert federation.groups is not None  # made here, so they are known
for cluster in state.clusters:
    shifted = np.flatnonzero(federation.groups[cluster.members] == 1)
    print(f"cluster {cluster.id}, born in round {cluster.born}: {len(cluster.members)} clients, {len(shifted)} of them shifted")
