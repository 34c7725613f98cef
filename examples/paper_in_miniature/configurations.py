"""The models and recipes that the experiments share; images are of 28 x 28 pixels."""

from dataclasses import replace

from keras_vit.models import BackboneConfig, ResNetConfig, ViTConfig
from keras_vit.training import Recipe

# Of Fashion-MNIST: about 4.45 million multiply-adds for an image.
VIT = ViTConfig(
    image_size=28, patch_size=4, hidden_size=48, num_layers=4, num_heads=4, mlp_dim=80, num_classes=10
)  # 7 x 7 patches
RESNET = ResNetConfig(image_size=28, depths=(2, 1), width_factor=0.5, num_classes=10)
HYBRID = replace(
    VIT, patch_size=1, num_layers=2, mlp_dim=96, backbone=BackboneConfig(depths=(1,), width_factor=0.5)
)  # a feature map of 7 x 7 cells

# Of fractals: about 3.63 million multiply-adds. One trial with patches of 7 pixels gave 34 %, one of 4 pixels 20 %; no
# committed table repeats them yet.
FRACTAL_MODELS = {
    "ViT": ViTConfig(
        image_size=28, patch_size=7, hidden_size=96, num_layers=3, num_heads=4, mlp_dim=136, num_classes=100
    ),
    "ResNet": ResNetConfig(image_size=28, depths=(1, 1), width_factor=0.5, num_classes=100),
    "hybrid": replace(HYBRID, hidden_size=40, mlp_dim=64, num_classes=100),
}

SHIPPED = "ViT-Mini/4:fashion-mnist"

# 64,000 images: one pass over the largest training set.
PRETRAINING = Recipe(
    name="miniature",
    source="docs/paper_in_miniature.md",
    optimizer="Adam",
    learning_rate=3e-3,
    batch_size=64,
    steps=1000,
    warmup_steps=100,
    weight_decay=0.05,
    image_size=None,
    augmentation="pad-crop",
)

# Three budgets of compute, and with each the sizes of the training set, of which a model sees at most as many images.
BUDGETS = {800: (4_000, 40_000), 2_400: (4_000, 40_000, 400_000), 7_200: (4_000, 40_000, 400_000)}
FRACTALS = PRETRAINING.with_(augmentation="none", weight_decay=0.1)  # where the search for rate and decay begins
SGD = {"optimizer": "SGD", "learning_rate": 0.3, "weight_decay": 1e-3}

# Short, as Table 4's are: from trained weights to a few hundred images of another task.
FINETUNING = Recipe(
    name="miniature-finetuning",
    source="docs/paper_in_miniature.md",
    optimizer="SGD",
    learning_rate=0.03,
    batch_size=32,
    steps=200,
    image_size=None,
    augmentation="none",
)
