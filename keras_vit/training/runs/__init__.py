"""A run: its folder, checkpoints and other files, and resuming it."""
