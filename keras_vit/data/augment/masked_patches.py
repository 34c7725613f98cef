"""The settings of masked patch prediction (Appendix B.1.2): the share of corrupted patches, and the target.
No TensorFlow here; corruption.py draws.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from keras_vit.errors import DataError, describe_unknown

PatchTarget = Literal["mean-colour", "colours-4x4", "pixels"]
# Shares of the corrupted patches (Devlin et al., 2019): masked, replaced by another patch, kept.
SHARES = (0.8, 0.1, 0.1)
LEVELS = 8  # 3 bits of each of the three channels: 512 colours
COLOURS = LEVELS**3
# Targets: the colours of a patch in so many rows and columns; None for its pixels.
SIDES = {"mean-colour": 1, "colours-4x4": 4, "pixels": None}


@dataclass(frozen=True)
class MaskedPatches:
    """The objective of masked patch prediction (Appendix B.1.2).

    A share `rate` of each image's patches is corrupted, rounded to a whole number. It is the same for every image, so
    that all images of a batch have equal weight. Each corrupted patch is, at random, replaced by the learnable mask
    embedding (80 %), replaced by the embedding of another patch of the same image (10 %), or kept (10 %). All corrupted
    patches are predicted.

    Args:
        patch_size: the model's, int or (height, width) in pixels.
        target: "mean-colour": the patch's mean colour in 3 bits per channel, one of 512 classes (the paper's results);
            "colours-4x4": the mean colours of 4 x 4 parts of the patch; "pixels": all pixels of the patch as the model
            receives them, with an L2 loss (slightly worse in the paper).
        rate: share of corrupted patches, in (0, 1]; the paper also tried BERT's 0.15.

    Raises:
        DataError: for values outside these ranges, or for 4 x 4 colours of a patch with fewer pixels.

    >>> objective = MaskedPatches(patch_size=16)
    >>> objective.grid((224, 224)), objective.count_corrupted((224, 224)), objective.target_shape
    ((14, 14), 98, ())
    """

    patch_size: int | tuple[int, int] = (16, 16)
    target: PatchTarget = "mean-colour"
    rate: float = 0.5

    def __post_init__(self):
        size = (self.patch_size,) * 2 if isinstance(self.patch_size, int) else tuple(self.patch_size)
        object.__setattr__(self, "patch_size", size)
        if self.target not in get_args(PatchTarget):
            raise DataError(describe_unknown("target of masked patches", self.target, get_args(PatchTarget)))
        if not 0 < self.rate <= 1:
            raise DataError(f"The rate of corrupted patches must be in (0, 1]. Received: {self.rate}.")
        if min(size) < (self.side or 1):
            raise DataError(
                f"colours-4x4 needs patches of at least 4 x 4 pixels. Received: patches of {self.patch_size}. "
                "Choose the target mean-colour."
            )

    @property
    def side(self) -> int | None:
        """The number of rows, and of columns, of predicted colours in a patch; None if pixels are predicted."""
        return SIDES[self.target]

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of one patch's target: () or (16,) class numbers, or the (pixels * 3,) values of its pixels."""
        if self.side is None:
            height, width = self.patch_size
            return (3 * height * width,)
        return (self.side**2,) if self.side > 1 else ()

    @property
    def recipe_changes(self) -> dict:
        """The fields of a recipe that the objective sets: its loss, and no pre-logits layer or bias for a head."""
        loss = "squared-error" if self.side is None else "softmax"
        return {"loss": loss, "representation_size": None, "head_bias": None}

    def grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of patches of an image.

        Raises:
            DataError: if the image is no whole number of patches, or only one.
        """
        (height, width), (rows, columns) = image_size, self.patch_size
        if height % rows or width % columns or (height, width) == (rows, columns):
            raise DataError(
                f"Masked patches need images of several whole patches. Received: {height} x {width} pixels, patches of "
                f"{rows} x {columns}."
            )
        return height // rows, width // columns

    def count_corrupted(self, image_size: tuple[int, int]) -> int:
        """The number of corrupted patches in each image; at least 1."""
        rows, columns = self.grid(image_size)
        return max(1, round(self.rate * rows * columns))
