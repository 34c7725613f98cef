"""From names to checkpoints: the registry, and the grammar of the authors' file names."""
