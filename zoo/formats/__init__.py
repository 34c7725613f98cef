"""Checkpoint files: `endings` has a row for each kind, `open_checkpoint` reads any of them."""
