"""Runs: recipe, loop, folder, checkpoint, replay."""
