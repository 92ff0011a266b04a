"""Local training: a client's steps on a model that is one vector."""
