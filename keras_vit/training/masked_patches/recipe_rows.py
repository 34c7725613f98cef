"""The settings of masked patch prediction (Appendix B.1.2), as rows of `keras_vit.training.RECIPES`.

Imports neither Keras nor TensorFlow.
"""

from keras_vit.training.recipes import Recipe


def masked_patches_row(name, steps):
    """A row of Appendix B.1.2, which names no weight decay, dropout or clipping."""
    return Recipe(
        name=f"pretrain-{name}",
        source="arXiv 2010.11929, Appendix B.1.2; crop and flip: google-research/vision_transformer issue 103",
        optimizer="Adam",
        learning_rate=2e-4,
        batch_size=4096,
        steps=steps,
        warmup_steps=10_000,
        global_clipnorm=None,
        models=("ViT-B/16",),
    )


# 1M steps are 14 epochs of JFT; the paper saw little gain after 100k, and about the same from ImageNet's images.
MASKED_PATCHES = (
    masked_patches_row("masked-patches", 1_000_000),
    masked_patches_row("masked-patches-100k", 100_000),
)
