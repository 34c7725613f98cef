"""Batches whose random changes the model makes itself, on its device: images of bytes, and what is to be done to them.

`keras_vit.images.augmenting` does it. A batch is a dict of

    images              uint8 (n, h, w, c), cropped and mirrored
    operations          float32 (n, layers, 12): of RandAugment, a kind, a factor, a matrix (6) and a square (4)
    tables              uint8 (n, layers, 256): the value that each value becomes
    mixing              float32 (n, 5): the rectangle in which the partner has a weight, and that weight
    partner_images, partner_operations, partner_tables

without the parts that an augmentation does not need. Partners are sent, although each is another's image, so that
replicas and microbatches, which have parts of a batch, compute what one device does with the whole.
"""

import tensorflow as tf

from keras_vit.data.augment.mixing import draw_mixing, mix_labels, share_of_partner
from keras_vit.data.augment.randaugment import choose, draw
from keras_vit.data.reading.order import batch_seed
from keras_vit.images.operations import measure


def describe_operations(draws, magnitude, height, width):
    """(operations, tables) of draws, float32 (n, layers, 4)."""
    strength = measure(magnitude, height, width)
    kinds, tables, matrices, squares = choose(draws, strength, height, width)
    kinds = tf.cast(kinds, tf.float32)[..., None]
    return tf.concat([kinds, tf.fill(tf.shape(kinds), strength.factor), matrices, squares], -1), tables


def draw_layers(augmentation, seed):
    """The draws for the layers of RandAugment, float32 (layers, 4), on a visit of an example; of none, (0, 4)."""
    return draw(augmentation.randaugment[0] if augmentation.randaugment else 0, seed)


def describe_batch(images, labels, draws, augmentation, num_classes, key, step):
    """(a batch as above, mixed labels); `draws` are float32 (n, layers, 4), other arguments as in `mixing.mix`."""
    batch, size = {"images": images}, images.shape[1:3]
    if augmentation.randaugment:
        batch["operations"], batch["tables"] = describe_operations(draws, augmentation.randaugment[1], *size)
    if augmentation.one_hot:
        mixing = draw_mixing(*size, augmentation=augmentation, seed=batch_seed(key, step))
        labels = mix_labels(labels, share_of_partner(mixing, *size), num_classes)
        batch |= {f"partner_{name}": tf.roll(part, 1, 0) for name, part in batch.items()}
        batch["mixing"] = tf.repeat(mixing[None], tf.shape(images)[0], 0)
    return batch, labels
