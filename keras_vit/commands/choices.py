"""What a training command takes where it is not told: row, checkpoint, size, batch. Imports no Keras.

docs/training.md says the same to users.
"""

from keras_vit.models.config import VARIANTS, ResNetConfig, variant
from keras_vit.zoo.names.rows import checkpoints

# The paper's datasets (section 4.1) and the rows of Table 4 that are theirs.
FINE_TUNING = {
    "imagenet2012": "finetune-imagenet",
    "cifar10": "finetune-cifar10",
    "cifar100": "finetune-cifar100",
    "oxford_iiit_pet": "finetune-pets",
    "oxford_flowers102": "finetune-flowers",
    "vtab": "finetune-vtab",
}
OWN_ROW = ("ViT-L/16", "ViT-H/14")  # on ImageNet at 512 and 518 pixels (section 4.1)
# The paper's own weights before any fine-tuning; those of others where there are none.
PRETRAINED = ("i21k", "augreg-i21k", "bit-m")
EPOCHS = 30  # over data that the paper does not have
SEVERAL = 8  # batches that an epoch of such data has at least
SMALLEST = 8
AT_ONCE = 32 * 224 * 224  # pixels in a microbatch of one device


def title(dataset):
    """The dataset that a name of `data.load` means, if it is of TFDS: "cifar10" of "tfds:cifar10:3.*"."""
    if dataset.startswith("vtab/"):
        return "vtab"
    scheme, _, name = dataset.partition(":")
    return name.partition(":")[0].partition("/")[0] if scheme == "tfds" else dataset


def recipe_name(dataset, model, pretrain):
    """(name of a recipe, whether the paper trains on that dataset)."""
    return (pretraining if pretrain else fine_tuning)(title(dataset), model.partition(":")[0])


def fine_tuning(dataset, model):
    """Table 4's row; that of CIFAR-10 for other datasets."""
    name = FINE_TUNING.get(dataset, "finetune-cifar10")
    if dataset == "imagenet2012" and model in OWN_ROW:
        name = f"{name}-{model}"
    return name, dataset in FINE_TUNING


def pretraining(dataset, model):
    """Table 3's row for a ViT or hybrid, BiT's for a ResNet; that of ImageNet for other datasets."""
    resnet = variant(model).family == "ResNet"
    if dataset.startswith("jft"):
        return "pretrain-jft", True
    if dataset == "imagenet21k":
        return "bit-i21k" if resnet else "pretrain-imagenet21k", True
    return "bit-i1k" if resnet else "pretrain-imagenet", dataset == "imagenet2012"


def checkpoint(model):
    """What fine-tuning starts from: a bare variant's weights of ImageNet-21k, not those tuned to ImageNet-1k.

    >>> checkpoint("ViT-B/16"), checkpoint("ViT-S/16"), checkpoint("ViT-B/16:sam")
    ('ViT-B/16:i21k', 'ViT-S/16:augreg-i21k', 'ViT-B/16:sam')
    """
    tags = {row.tag for row in checkpoints() if row.variant == model}
    return next((f"{model}:{tag}" for tag in PRETRAINED if tag in tags), model)


def whole_patches(size, model):
    """The size without what is left over beside the patches: 378 of 384 for ViT-H/14, as in the authors' code."""
    known = VARIANTS.get(model.partition(":")[0])
    if known is None or isinstance(known.config, ResNetConfig):
        return size
    return size - size % max(known.config.pixels_per_token)


def batch_size(own, examples, paper, replicas=1):
    """The row's `own` batch where the data are enough, else the largest power of two that gives several batches.

    The paper's datasets are enough with one batch (Flowers has 1.8 of 512). A batch is never more than the data.

    >>> batch_size(512, 918, paper=True), batch_size(512, 5000, paper=False), batch_size(512, 500, paper=False)
    (512, 512, 32)
    """
    if examples < (1 if paper else SEVERAL) * own:
        own = min(examples, max(SMALLEST, 2 ** (examples // SEVERAL).bit_length() // 2))
    return max(own // replicas, 1) * replicas


def microbatches(batch_size, image_size, replicas=1):
    """Parts of each replica's batch, so that a part has at most the pixels of 32 images of 224 x 224.

    >>> microbatches(512, (384, 384)), microbatches(512, (224, 224), replicas=8)
    (64, 2)
    """
    each, most = batch_size // replicas, max(AT_ONCE // (image_size[0] * image_size[1]), 1)
    return next((n for n in range(1, each + 1) if each % n == 0 and each // n <= most), 1)
