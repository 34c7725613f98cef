"""`keras-vit pretrain`: as `finetune`, from random weights."""

from keras_vit.commands.finetune import start_training
from keras_vit.commands.options import with_options_of
from keras_vit.trainers.resume import MODELS


@with_options_of(start_training, model=MODELS[True], dataset=None)
def pretrain(**arguments) -> None:
    """Trains a model from random weights, with the options of `finetune`.

    With --objective masked-patches it learns without labels: a share of the patches is corrupted and their colours are
    predicted (Appendix B.1.2 of the paper). The weights and model.keras of the run are then the encoder without a head,
    which `finetune --model` starts from; masked_patches.png shows what is predicted.

    Example: keras-vit pretrain --data digits --out runs/2 --model ViT-Test/4 --image-size 16 --learning-rate 0.002
    """
    start_training(**arguments, pretrain=True)
