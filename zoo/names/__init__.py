"""Finds checkpoints by name: the registry, and the grammar of the authors' file names."""
