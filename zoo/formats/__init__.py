"""Checkpoint files: their layouts, and what they state of their models."""
