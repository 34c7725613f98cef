"""A run: its folder, its checkpoints, what it writes, and how it is resumed."""
