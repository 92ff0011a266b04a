"""What a client does: local SGD on a model that is one vector."""
