"""Chooses the settings of a training that are not given: recipe, checkpoint, size, batch. Imports no Keras.

docs/training.md says the same to users.
"""

from keras_vit.models.variants import VARIANTS, variant
from keras_vit.training.recipe_rows import PHOTOS
from keras_vit.zoo.names.rows import checkpoints

# The paper's datasets (section 4.1) and their recipes of Table 4.
FINE_TUNING = {
    "imagenet2012": "finetune-imagenet",
    "cifar10": "finetune-cifar10",
    "cifar100": "finetune-cifar100",
    "oxford_iiit_pet": "finetune-pets",
    "oxford_flowers102": "finetune-flowers",
    "vtab": "finetune-vtab",
}
OWN_ROW = ("ViT-L/16", "ViT-H/14")  # on ImageNet at 512 and 518 pixels (section 4.1)
# Tags of weights before any fine-tuning: the paper's own, then those of others.
PRETRAINED = ("i21k", "augreg-i21k", "bit-m")


def name_in_tfds(dataset: str) -> str:
    """TFDS's name of the dataset, if a name of `data.load` stands for one of TFDS; otherwise the name itself.

    >>> name_in_tfds("tfds:cifar10:3.*"), name_in_tfds("vtab/eurosat"), name_in_tfds("folder:photos")
    ('cifar10', 'vtab', 'folder:photos')
    """
    if dataset.startswith("vtab/"):
        return "vtab"
    scheme, _, name = dataset.partition(":")
    return name.partition(":")[0].partition("/")[0] if scheme == "tfds" else dataset


def choose_finetuning(dataset, model):
    """Table 4's recipe; for other datasets "finetune-photos"."""
    name = FINE_TUNING.get(dataset, PHOTOS.name)
    if dataset == "imagenet2012" and model in OWN_ROW:
        name = f"{name}-{model}"
    return name, dataset in FINE_TUNING


def choose_pretraining(dataset, model):
    """Table 3's recipe for a ViT or hybrid, BiT's for a ResNet; that of ImageNet for other datasets."""
    resnet = variant(model).family == "ResNet"
    if dataset.startswith("jft"):
        return "pretrain-jft", True
    if dataset == "imagenet21k":
        return "bit-i21k" if resnet else "pretrain-imagenet21k", True
    return "bit-i1k" if resnet else "pretrain-imagenet", dataset == "imagenet2012"


def choose_masked_patches(dataset):
    """Appendix B.1.2's recipe: a million steps on JFT, a tenth of that on any other dataset."""
    if dataset.startswith("jft"):
        return "pretrain-masked-patches", True
    return "pretrain-masked-patches-100k", dataset == "imagenet2012"


def choose_recipe(dataset: str, model: str, pretrain: bool, objective: str | None = None) -> tuple[str, bool]:
    """(name of a recipe, whether the paper trains on that dataset).

    >>> choose_recipe("cifar100", "ViT-B/16", pretrain=False), choose_recipe("digits", "R50x1", pretrain=True)
    (('finetune-cifar100', True), ('bit-i1k', False))
    """
    if objective == "masked-patches":
        return choose_masked_patches(name_in_tfds(dataset))
    choose = choose_pretraining if pretrain else choose_finetuning
    return choose(name_in_tfds(dataset), model.partition(":")[0])


def choose_checkpoint(model: str) -> str:
    """The checkpoint to fine-tune: for a bare variant its weights of ImageNet-21k, not those tuned on ImageNet-1k.

    >>> choose_checkpoint("ViT-B/16"), choose_checkpoint("ViT-S/16"), choose_checkpoint("ViT-B/16:sam")
    ('ViT-B/16:i21k', 'ViT-S/16:augreg-i21k', 'ViT-B/16:sam')
    """
    tags = {row.tag for row in checkpoints() if row.variant == model}
    return next((f"{model}:{tag}" for tag in PRETRAINED if tag in tags), model)


def round_to_patches(size: int, model: str) -> int:
    """Rounds a size down to whole patches, as in the authors' code, or to whole cells of an AxialResNet.

    >>> round_to_patches(384, "ViT-H/14"), round_to_patches(384, "ViT-B/16")
    (378, 384)
    """
    known = VARIANTS.get(model.partition(":")[0])
    return size if known is None else size - size % known.config.size_step
