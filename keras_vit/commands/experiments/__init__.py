"""The commands of the paper's experiments (docs/experiments.md)."""
