"""Augmentations as rows: the official code's, BiT-HyperRule's and AugReg's. No TensorFlow here."""

from dataclasses import dataclass
from typing import Literal, get_args

from keras_vit.errors import DataError, describe_unknown

Crop = Literal["inception", "resize", "resize_crop", "resize_small_crop", "pad_crop"]


def require(holds, sentence):
    if not holds:
        raise DataError(sentence)


@dataclass(frozen=True)
class Augmentation:
    """The random changes to a training image before the model's own normalization.

    Args:
        crop: "inception": a part of random area and aspect ratio, resized to the model's size (arXiv 1409.4842);
            "resize": the whole image, resized; "resize_crop": resized to a square of `resize` pixels, then a random
            part of the model's size (BiT-HyperRule); "resize_small_crop": the same, but keeps the aspect ratio and
            resizes the short side to `resize` pixels (big_vision's "resmall"); "pad_crop": the whole image, resized,
            padded by its reflection, 1/8 of the size on every side, then a random part of the model's size. So
            objects keep their size, good for small images (arXiv 1512.03385, section 4.2, pads with zeros).
        resize: side in pixels, for "resize_crop" and "resize_small_crop"; at least the model's size. None for
            7/6 of it: 448 for 384.
        area: (least, most) share of the image that an inception crop keeps, in (0, 1].
        ratio: (least, most) width / height of an inception crop.
        flip: whether to mirror an image left to right with probability 1/2.
        randaugment: (layers, magnitude): so many random operations of strength magnitude / 10, for a magnitude from 0
            to 30; None for no operations.
        mixup: alpha; the mixing weight of a batch is drawn from Beta(alpha, alpha). 0 for no mixup.
        cutmix: likewise alpha, for pasting a rectangle of another image (arXiv 1905.04899); 0 for no cutmix. With both,
            each batch gets one of them, with probability 1/2.

    Raises:
        DataError: for values outside these ranges.

    >>> Augmentation(flip=False, randaugment=(2, 10), mixup=0.2).one_hot
    True
    """

    crop: Crop = "inception"
    resize: int | None = None
    area: tuple[float, float] = (0.05, 1.0)
    ratio: tuple[float, float] = (0.75, 1.33)
    flip: bool = True
    randaugment: tuple[int, float] | None = None
    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self):
        crops = get_args(Crop)
        require(self.crop in crops, f"crop must be one of {', '.join(crops)}. Received: {self.crop!r}.")
        require(0 < self.area[0] <= self.area[1] <= 1, f"area must be (least, most) in (0, 1]. Received: {self.area}.")
        require(0 < self.ratio[0] <= self.ratio[1], f"ratio must be (least, most), above 0. Received: {self.ratio}.")
        require(
            self.mixup >= 0 and self.cutmix >= 0,
            f"mixup and cutmix must be at least 0. Received: {self.mixup}, {self.cutmix}.",
        )
        if self.randaugment is not None:
            layers, magnitude = self.randaugment
            require(
                layers >= 1 and 0 <= magnitude <= 30,
                f"randaugment must be (layers from 1, magnitude in 0..30). Received: {self.randaugment}.",
            )

    @property
    def restricted(self) -> bool:
        """Whether images are not cropped, or not mirrored, because this would change labels of the dataset."""
        return self.crop == "resize" or not self.flip

    @property
    def one_hot(self) -> bool:
        """Whether labels are mixed, and so float (n, num_classes) instead of integers (n,)."""
        return bool(self.mixup or self.cutmix)


def hyper_rule_sizes(height: int, width: int, model: str | None = None) -> tuple[int, int]:
    """BiT-HyperRule (arXiv 1912.11370, section 3.3): (resize, crop) in pixels for the typical image size of a dataset.

    The authors' later code crops to 480 for every model, the paper only for R152x4.

    >>> hyper_rule_sizes(32, 32), hyper_rule_sizes(375, 500), hyper_rule_sizes(375, 500, "R152x4")
    ((160, 128), (448, 384), (512, 480))
    """
    if height * width < 96 * 96:
        return 160, 128
    return (512, 480) if model == "R152x4" else (448, 384)


AUGMENTATIONS: dict[str, Augmentation] = {
    "none": Augmentation(crop="resize", flip=False),
    # vit_jax/input_pipeline.py: also the AugReg level "none".
    "inception": Augmentation(),
    # BiT-HyperRule (hyper_rule_sizes), and the paper's own fine-tuning. (BiT's TF2 and JAX code flips every image, an
    # oversight; the paper's text and the PyTorch code flip at random.)
    "bit-small": Augmentation(crop="resize_crop", resize=160),
    "bit": Augmentation(crop="resize_crop"),
    "bit-large": Augmentation(crop="resize_crop", resize=512),
    # For tasks of VTAB whose labels a crop or a mirror would change (arXiv 1912.11370, Supplement F).
    "bit-no-flip": Augmentation(crop="resize_crop", flip=False),
    "flip": Augmentation(crop="resize"),
    "bit-small-mixup": Augmentation(crop="resize_crop", resize=160, mixup=0.1),
    "bit-mixup": Augmentation(crop="resize_crop", mixup=0.1),
    "bit-large-mixup": Augmentation(crop="resize_crop", resize=512, mixup=0.1),
    "pad-crop": Augmentation(crop="pad_crop"),
    "pad-crop-mixup-cutmix": Augmentation(crop="pad_crop", mixup=0.8, cutmix=1.0),
    "pad-crop-mixup-cutmix-light": Augmentation(crop="pad_crop", mixup=0.2, cutmix=0.5),
    "shift": Augmentation(crop="pad_crop", flip=False),  # a mirror would change digits and letters
    # AugReg (arXiv 2106.10270), section 3.3: RandAugment(2, m) and mixup p.
    "light1": Augmentation(randaugment=(2, 0)),
    "light2": Augmentation(randaugment=(2, 10), mixup=0.2),
    "medium1": Augmentation(randaugment=(2, 15), mixup=0.2),
    "medium2": Augmentation(randaugment=(2, 15), mixup=0.5),
    "strong1": Augmentation(randaugment=(2, 20), mixup=0.5),
    "strong2": Augmentation(randaugment=(2, 20), mixup=0.8),
}


def find_augmentation(named: str | Augmentation) -> Augmentation:
    """The row of a name; an `Augmentation` is returned unchanged."""
    if isinstance(named, Augmentation):
        return named
    require(named in AUGMENTATIONS, describe_unknown("augmentation", named, AUGMENTATIONS))
    return AUGMENTATIONS[named]
