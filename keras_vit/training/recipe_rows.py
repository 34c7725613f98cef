"""The settings of the paper and of its sources as rows. Imports neither Keras nor TensorFlow."""

from dataclasses import dataclass, replace

from keras_vit.data.augment.rows import hyper_rule_sizes
from keras_vit.errors import ConfigError
from keras_vit.models.config import variant
from keras_vit.training.numbers import require_counts, require_positive

IMAGENET, IMAGENET21K, JFT = 1_281_167, 14_197_122, 303_000_000


@dataclass(frozen=True)
class Row:
    """How a model is trained.

    Args:
        name, source: of the row.
        optimizer: "SGD" (momentum 0.9) or "Adam" (0.9 and 0.999).
        learning_rate: the peak, at `batch_size`.
        decay: "cosine", "linear" or "staircase" (with `boundaries`, in updates).
        steps: updates; or None with `epochs` passes over `examples`.
        warmup_steps: updates of linear warmup.
        weight_decay: decoupled, of kernels, times the learning rate (Keras' and PyTorch's convention).
        ema_momentum: of the averaged weights (Polyak averaging); None for none.
        representation_size: width of the tanh layer before the head (section 3.1); True for the model's hidden_size.
        loss: "softmax" or "sigmoid"; `head_bias` is what the head's bias starts from.
        image_size: in pixels; None for the model's own.
        augmentation: row of `keras_vit.data.AUGMENTATIONS`.
        learning_rates: the grid searched (Appendix B.1.1); `development`: share of the training set searched on.
        epochs_choices: the numbers of epochs that the source gives.
        models: the variants that the source gives the row for, where it says.

    Raises:
        ConfigError: for numbers that no run can have.
    """

    name: str
    source: str
    optimizer: str
    learning_rate: float
    batch_size: int
    decay: str = "cosine"
    steps: int | None = None
    epochs: float | None = None
    examples: int | None = None
    warmup_steps: int = 0
    boundaries: tuple = ()
    weight_decay: float | None = None
    global_clipnorm: float | None = 1.0
    momentum_dtype: str | None = None
    ema_momentum: float | None = None
    dropout_rate: float = 0.0
    representation_size: int | bool | None = None
    label_smoothing: float = 0.0
    loss: str = "softmax"
    head_bias: float | None = None
    image_size: int | None = 224
    augmentation: str = "inception"
    learning_rates: tuple = ()
    development: float | None = None
    epochs_choices: tuple = ()
    models: tuple = ()

    def __post_init__(self):
        require_counts(batch_size=self.batch_size, steps=self.steps, examples=self.examples)
        require_positive(learning_rate=self.learning_rate, epochs=self.epochs)
        require_counts(total_steps=self.total_steps)

    @property
    def total_steps(self):
        return self.steps or max(1, round(self.epochs * self.examples / self.batch_size))

    @property
    def images_seen(self):
        """Images of the whole training, each visit of one counting."""
        return self.total_steps * self.batch_size


def pretraining(name, examples, epochs, learning_rate, decay, weight_decay, dropout_rate, clip=None, **fields):
    """A row of Table 3, for ViTs and hybrids with the hidden layer of sections 3.1 and D.3."""
    epochs = epochs if isinstance(epochs, tuple) else (epochs,)
    fields = {
        "source": "arXiv 2010.11929, Table 3",
        "epochs_choices": epochs,
        "representation_size": True if "ViT" in name or name == "imagenet" else None,
        **fields,
    }
    return Row(
        f"pretrain-{name}",
        optimizer="Adam",
        learning_rate=learning_rate,
        batch_size=4096,
        decay=decay,
        epochs=epochs[-1],
        examples=examples,
        warmup_steps=10_000,
        weight_decay=weight_decay,
        dropout_rate=dropout_rate,
        global_clipnorm=clip,
        **fields,
    )


# Table 3 does not name the losses: JFT's and ImageNet-21k's images have several labels, hence the sigmoid.
SIGMOID = {"loss": "sigmoid", "head_bias": -10.0}
# Table 3 has 7 epochs for R152x{1,2}; R152x2 also had 14, and R200x3, which Table 3 does not have, those (section 4.4).
R152 = {"models": ("R152x1", "R152x2"), "source": "arXiv 2010.11929, Table 3; R152x2's 14 epochs: section 4.4, Table 6"}
B, L = ("ViT-B/16", "ViT-B/32"), ("ViT-L/16", "ViT-L/32")
HYBRID_B = ("R50+ViT-B/16", "R50+ViT-B/32")
TABLE3 = (
    pretraining("jft-ViT-B", JFT, 7, 8e-4, "linear", 0.1, 0.0, models=B, **SIGMOID),
    pretraining("jft-ViT-L/32", JFT, 7, 6e-4, "linear", 0.1, 0.0, models=("ViT-L/32",), **SIGMOID),
    pretraining("jft-ViT-L/16", JFT, (7, 14), 4e-4, "linear", 0.1, 0.0, models=("ViT-L/16",), **SIGMOID),
    pretraining("jft-ViT-H/14", JFT, 14, 3e-4, "linear", 0.1, 0.0, models=("ViT-H/14",), **SIGMOID),
    pretraining("jft-R50", JFT, 7, 1e-3, "linear", 0.1, 0.0, models=("R50x1", "R50x2"), **SIGMOID),
    pretraining("jft-R101", JFT, 7, 8e-4, "linear", 0.1, 0.0, models=("R101x1",), **SIGMOID),
    pretraining("jft-R152", JFT, 7, 6e-4, "linear", 0.1, 0.0, epochs_choices=(7, 14), **R152, **SIGMOID),
    pretraining("jft-R50+ViT-B", JFT, 7, 8e-4, "linear", 0.1, 0.0, models=HYBRID_B, **SIGMOID),
    pretraining("jft-R50+ViT-L/32", JFT, 7, 2e-4, "linear", 0.1, 0.0, models=("R50+ViT-L/32",), **SIGMOID),
    pretraining("jft-R50+ViT-L/16", JFT, (7, 14), 4e-4, "linear", 0.1, 0.0, models=("R50+ViT-L/16",), **SIGMOID),
    pretraining("imagenet21k-ViT-B", IMAGENET21K, 90, 1e-3, "linear", 0.03, 0.1, models=B, **SIGMOID),
    pretraining("imagenet21k-ViT-L", IMAGENET21K, (30, 90), 1e-3, "linear", 0.03, 0.1, models=L, **SIGMOID),
    pretraining("imagenet", IMAGENET, 300, 3e-3, "cosine", 0.3, 0.1, clip=1.0),
)


TABLE4_SOURCE = (
    "arXiv 2010.11929, Table 4; resize, random crop and flip: section 4.1 and Appendix B.1.1, after arXiv 1912.11370; "
    "rate within its range and warmup: google-research/vision_transformer, big_vision"
)


def finetuning(
    name, steps, learning_rates, learning_rate, development=None, image_size=384, source=TABLE4_SOURCE, **fields
):
    """A row of Table 4. The warmup and bfloat16 momentum are the official code's (vit_jax, big_vision's transfer).

    Its inception crop is not taken: the paper's pre-processing is Kolesnikov's, 448 x 448 pixels cropped to 384.
    """
    fields = {"augmentation": "bit", **fields}
    return Row(
        f"finetune-{name}",
        source,
        "SGD",
        learning_rate,
        512,
        steps=steps,
        warmup_steps=100 if steps == 500 else 500,
        momentum_dtype="bfloat16",
        image_size=image_size,
        learning_rates=learning_rates,
        development=development,
        **fields,
    )


SMALL_RATES = (0.001, 0.003, 0.01, 0.03)
IMAGENET_RATES = (0.003, 0.01, 0.03, 0.06)
TABLE4 = (
    finetuning("imagenet", 20_000, IMAGENET_RATES, 0.03, 0.01),
    # Table 2's models: resolution 512 for L/16, 518 for H/14, and Polyak averaging (section 4.1).
    finetuning("imagenet-ViT-L/16", 20_000, IMAGENET_RATES, 0.03, 0.01, image_size=512, ema_momentum=0.9999),
    finetuning("imagenet-ViT-H/14", 20_000, IMAGENET_RATES, 0.03, 0.01, image_size=518, ema_momentum=0.9999),
    finetuning("cifar100", 10_000, SMALL_RATES, 0.01, 0.02),
    finetuning("cifar10", 10_000, SMALL_RATES, 0.01, 0.02),
    finetuning("pets", 500, SMALL_RATES, 0.003, 0.10),
    finetuning("flowers", 500, SMALL_RATES, 0.003, 0.10),
    finetuning("vtab", 2_500, (0.01,), 0.01, augmentation="none"),
)
AUGREG_FINETUNING = finetuning(
    "augreg",
    500,
    (),
    0.03,
    source="arXiv 2106.10270; google-research/vision_transformer vit_jax/configs/augreg.py",
    augmentation="inception",
)


def hyper_rule(size, warmup_steps, boundaries, steps, augmentation):
    return Row(
        f"bit-hyperrule-{size}",
        "arXiv 1912.11370, section 3.3 (BiT-HyperRule)",
        "SGD",
        0.003,
        512,
        decay="staircase",
        steps=steps,
        warmup_steps=warmup_steps,
        boundaries=boundaries,
        global_clipnorm=None,
        image_size=384,
        augmentation=augmentation,
    )


# For images of 96 x 96 pixels or more, and any model but R152x4; `hyper_rule_row` has the others.
HYPER_RULE = (
    hyper_rule("small", 100, (200, 300, 400), 500, "bit"),
    hyper_rule("medium", 500, (3000, 6000, 9000), 10_000, "bit-mixup"),
    hyper_rule("large", 500, (6000, 12_000, 18_000), 20_000, "bit-mixup"),
)


def from_scratch(name, source, optimizer, rate, **fields):
    fields = {"batch_size": 4096, "warmup_steps": 10_000, "momentum_dtype": "bfloat16", **fields}
    return Row(name, source, optimizer, rate, **fields)


AUGREG_SOURCE = "arXiv 2106.10270; google-research/big_vision configs/"
# The configurations' decay of 1e-4 per step at the peak rate of 1e-3 is 0.1 times the rate.
SCRATCH = (
    from_scratch(
        "augreg-i21k",
        AUGREG_SOURCE + "vit_i21k.py",
        "Adam",
        1e-3,
        weight_decay=0.1,
        epochs=300,
        epochs_choices=(30, 90, 300),
        examples=IMAGENET21K - 51_200,
        loss="sigmoid",
        head_bias=-10.0,
        augmentation="light2",
    ),
    from_scratch(
        "augreg-i1k",
        AUGREG_SOURCE + "vit_i1k.py",
        "Adam",
        1e-3,
        weight_decay=0.1,
        epochs=300,
        examples=round(0.99 * IMAGENET),
        loss="sigmoid",
        head_bias=-6.9,
        representation_size=True,
        augmentation="medium2",
    ),
    from_scratch(
        "plain-vit-i1k",
        "arXiv 2205.01580; google-research/big_vision configs/vit_s16_i1k.py",
        "Adam",
        1e-3,
        batch_size=1024,
        weight_decay=0.1,
        epochs=90,
        examples=round(0.99 * IMAGENET),
        representation_size=True,
        augmentation="light2",
    ),
    from_scratch(
        "bit-i21k",
        "arXiv 1912.11370; google-research/big_vision configs/bit_i21k.py",
        "SGD",
        0.03 / 256 * 4096,
        weight_decay=1e-3,
        warmup_steps=5000,
        epochs=90,
        examples=IMAGENET21K - 51_200,
        loss="sigmoid",
        head_bias=-10.0,
    ),
    from_scratch(
        "bit-i1k",
        "arXiv 1912.11370; google-research/big_vision configs/bit_i1k.py",
        "SGD",
        0.1 / 256 * 4096,
        weight_decay=1e-3,
        warmup_steps=1000,
        epochs=90,
        examples=round(0.99 * IMAGENET),
    ),
)

# Appendix D.1: "the hyperparameters recommended by Kolesnikov et al.", for 7 epochs; they decay after 10, 23, 30 and 37
# of their 40. A weight decay of 1e-4 in the gradient is one of 1e-3 beside a momentum of 0.9.
SGD_ON_JFT = Row(
    "pretrain-jft-sgd",
    "arXiv 2010.11929, Appendix D.1; arXiv 1912.11370, whose 40 epochs and their decay are shortened in proportion",
    "SGD",
    0.03 / 256 * 4096,
    4096,
    decay="staircase",
    epochs=7,
    examples=JFT,
    warmup_steps=5000,
    boundaries=tuple(round(epoch / 40 * 7 * JFT / 4096) for epoch in (10, 23, 30, 37)),
    weight_decay=1e-3,
    global_clipnorm=None,
    models=("R50x1", "R152x2"),
    **SIGMOID,
)

RECIPES = {row.name: row for row in (*TABLE3, SGD_ON_JFT, *TABLE4, AUGREG_FINETUNING, *HYPER_RULE, *SCRATCH)}


def hyper_rule_row(row=None, examples=None, picture_size=None, model=None):
    """The BiT-HyperRule's row for a training set of that many examples, or `row` of it, at the size it chooses.

    Args:
        picture_size: (height, width) in pixels of the dataset's images; None for 96 x 96 or more.
        model: a variant; R152x4 alone takes 480 pixels.
    """
    if row is None:
        size = "small" if examples < 20_000 else "medium" if examples < 500_000 else "large"
        row = RECIPES[f"bit-hyperrule-{size}"]
    resize, crop = hyper_rule_sizes(*(picture_size or (96, 96)), model)
    kind = {160: "bit-small", 448: "bit", 512: "bit-large"}[resize]
    return replace(row, image_size=crop, augmentation=row.augmentation.replace("bit", kind))


def pretraining_row(dataset, model):
    """Table 3's row for a dataset, "jft" or "imagenet21k", and a variant.

    Other hybrids take their ViT's row (Appendix B.1), other ViTs that of the nearest size.

    Raises:
        ConfigError: for a ResNet that Table 3 does not have.
    """
    rows = [row for row in TABLE3 if row.name.startswith(f"pretrain-{dataset}-")]
    for row in rows:
        if model in row.models:
            return row
    if variant(model).family == "ResNet":
        raise ConfigError(
            f"Table 3 has no row, and so no learning rate, for {model} on {dataset}. Choose a row by its name: "
            f"{', '.join(row.name for row in (*rows, SGD_ON_JFT) if row.representation_size is None)}, bit-i21k, ..."
        )
    large = model.partition("ViT-")[2][0] in "LH"
    return RECIPES[f"pretrain-{dataset}-{'ViT-L' if large else 'ViT-B'}"]
