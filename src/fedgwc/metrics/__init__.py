"""How good the models are, and how good the clusters are."""
