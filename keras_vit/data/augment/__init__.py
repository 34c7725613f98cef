"""Augmentation: rows, crops, mixing, RandAugment."""
