"""ImageNet from scratch on a TPU, by the paper's settings (Table 3): ViT-B/16, 300 epochs, batches of 4,096.

    gcsfuse BUCKET /mnt/bucket  # a disk that outlives the machine
    python examples/imagenet_tpu.py --out /mnt/bucket/imagenet --strategy tpu

The model has pre-training's hidden layer before its head. docs/tpu.md says how to set up the machine. Without a TPU,
--strategy auto uses the devices that there are.
"""

import argparse

import keras_vit


def main(out, model, dataset, epochs, batch_size, image_size, strategy, steps_per_execution):
    train, held_out = keras_vit.data.load(dataset, "train"), keras_vit.data.load(dataset, "validation")
    recipe = keras_vit.training.recipe(
        "pretrain-imagenet", epochs=epochs, batch_size=batch_size, examples=train.num_examples, image_size=image_size
    )
    with keras_vit.training.strategy(strategy).scope():
        vit = keras_vit.zoo.load(
            model, weights=None, labels=train.class_names, dtype="mixed_bfloat16", **recipe.model_arguments
        )
        recipe.compile(vit, steps_per_execution=steps_per_execution)
    keras_vit.training.Run(out, every=5 * steps_per_execution).fit(
        vit,
        lambda step: train.train(batch_size, vit.preprocessing, start=step, dtype="uint8"),
        recipe.total_steps // steps_per_execution * steps_per_execution,
        steps_per_epoch=max(train.steps_per_epoch(batch_size) // steps_per_execution, 1) * steps_per_execution,
        validation=held_out.evaluation(batch_size, vit.preprocessing, dtype="uint8"),
        resume=True,
        verbose=2,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", default="runs/imagenet", help="folder of the run, on a disk that stays; no gs:// address"
    )
    parser.add_argument("--model", default="ViT-B/16")
    parser.add_argument("--dataset", default="imagenet2012")
    parser.add_argument("--epochs", type=float, default=300)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--steps-per-execution", type=int, default=100)
    main(**vars(parser.parse_args()))
