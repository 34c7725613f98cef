"""Masked patch prediction (Appendix B.1.2): the model, and a picture of its predictions.

Corruption and targets are made when an image is read: `data/augment/masked_patches.py` and `corruption.py`. The public
names are `keras_vit.training.MaskedPatchModel` and `keras_vit.evaluation.draw_masked_patches`.
"""
