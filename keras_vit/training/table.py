"""The settings of the paper and of its sources as rows. Imports neither Keras nor TensorFlow."""

from dataclasses import dataclass

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
        loss: "softmax" or "sigmoid"; `head_bias` is what the head's bias starts from.
        augmentation: row of `keras_vit.data.AUGMENTATIONS`.
        learning_rates: the grid searched (Appendix B.1.1); `development`: share of the training set searched on.
        epochs_choices: the numbers of epochs that the source gives.

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
    label_smoothing: float = 0.0
    loss: str = "softmax"
    head_bias: float | None = None
    image_size: int = 224
    augmentation: str = "inception"
    learning_rates: tuple = ()
    development: float | None = None
    epochs_choices: tuple = ()

    def __post_init__(self):
        require_counts(batch_size=self.batch_size, steps=self.steps, examples=self.examples)
        require_positive(learning_rate=self.learning_rate, epochs=self.epochs)
        require_counts(total_steps=self.total_steps)

    @property
    def total_steps(self):
        return self.steps or max(1, round(self.epochs * self.examples / self.batch_size))


def pretraining(name, examples, epochs, learning_rate, decay, weight_decay, dropout_rate, clip=None, **fields):
    """A row of Table 3."""
    epochs = epochs if isinstance(epochs, tuple) else (epochs,)
    return Row(
        f"pretrain-{name}",
        "arXiv 2010.11929, Table 3",
        "Adam",
        learning_rate,
        4096,
        decay=decay,
        epochs=epochs[-1],
        epochs_choices=epochs,
        examples=examples,
        warmup_steps=10_000,
        weight_decay=weight_decay,
        dropout_rate=dropout_rate,
        global_clipnorm=clip,
        **fields,
    )


# Table 3 does not name the losses: JFT's and ImageNet-21k's images have several labels, hence the sigmoid.
SIGMOID = {"loss": "sigmoid", "head_bias": -10.0}
TABLE3 = (
    pretraining("jft-ViT-B", JFT, 7, 8e-4, "linear", 0.1, 0.0, **SIGMOID),
    pretraining("jft-ViT-L/32", JFT, 7, 6e-4, "linear", 0.1, 0.0, **SIGMOID),
    pretraining("jft-ViT-L/16", JFT, (7, 14), 4e-4, "linear", 0.1, 0.0, **SIGMOID),
    pretraining("jft-ViT-H/14", JFT, 14, 3e-4, "linear", 0.1, 0.0, **SIGMOID),
    pretraining("jft-R50", JFT, 7, 1e-3, "linear", 0.1, 0.0, **SIGMOID),
    pretraining("jft-R101", JFT, 7, 8e-4, "linear", 0.1, 0.0, **SIGMOID),
    pretraining("jft-R152", JFT, 7, 6e-4, "linear", 0.1, 0.0, **SIGMOID),
    pretraining("jft-R50+ViT-B", JFT, 7, 8e-4, "linear", 0.1, 0.0, **SIGMOID),
    pretraining("jft-R50+ViT-L/32", JFT, 7, 2e-4, "linear", 0.1, 0.0, **SIGMOID),
    pretraining("jft-R50+ViT-L/16", JFT, (7, 14), 4e-4, "linear", 0.1, 0.0, **SIGMOID),
    pretraining("imagenet21k-ViT-B", IMAGENET21K, 90, 1e-3, "linear", 0.03, 0.1, **SIGMOID),
    pretraining("imagenet21k-ViT-L", IMAGENET21K, (30, 90), 1e-3, "linear", 0.03, 0.1, **SIGMOID),
    pretraining("imagenet", IMAGENET, 300, 3e-3, "cosine", 0.3, 0.1, clip=1.0),
)


TABLE4_SOURCE = (
    "arXiv 2010.11929, Table 4; rate within its range and warmup: google-research/vision_transformer, big_vision"
)


def finetuning(
    name, steps, learning_rates, learning_rate, development=None, image_size=384, source=TABLE4_SOURCE, **fields
):
    """A row of Table 4. The warmup and bfloat16 momentum are the official code's (vit_jax, big_vision's transfer)."""
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
    "augreg", 500, (), 0.03, source="arXiv 2106.10270; google-research/vision_transformer vit_jax/configs/augreg.py"
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
        image_size=480,
        augmentation=augmentation,
    )


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

RECIPES = {row.name: row for row in (*TABLE3, *TABLE4, AUGREG_FINETUNING, *HYPER_RULE, *SCRATCH)}


def hyper_rule_row(examples):
    """The BiT-HyperRule's row for a training set of that many examples."""
    size = "small" if examples < 20_000 else "medium" if examples < 500_000 else "large"
    return RECIPES[f"bit-hyperrule-{size}"]
