"""CIFAR-10 on one GPU, by the paper's settings (Table 4): ViT-B/16 at 384 pixels, 10,000 steps of 512 images.

    python examples/cifar10_gpu.py --out runs/cifar10

It trains on all 50,000 training images and evaluates the final weights once, on the test set (Appendix B.1.1). Each
batch of 512 is computed in 16 microbatches; more of them take less memory. The authors report 98.95 % for ViT-B/16
(Table 5). A run that was interrupted continues when it is started again. The same from the shell:

    keras-vit finetune --data cifar10 --split train+validation --test --microbatches 16 --precision mixed_bfloat16 \
        --out runs/cifar10
"""

import argparse

import keras_vit


def main(out, model, dataset, steps, batch_size, microbatches, image_size, precision):
    train, test = keras_vit.data.load(dataset, "train+validation"), keras_vit.data.load(dataset, "test")
    recipe = keras_vit.training.recipe("finetune-cifar10", steps=steps, batch_size=batch_size, image_size=image_size)
    with keras_vit.training.strategy("auto").scope():
        vit = keras_vit.zoo.load(model, labels=train.class_names, dtype=precision, **recipe.model_arguments)
        recipe.compile(vit, microbatches=microbatches)
    keras_vit.training.Run(out, every=min(500, recipe.total_steps)).fit(
        vit,
        lambda step: train.train(recipe.batch_size, vit.preprocessing, start=step),
        recipe.total_steps,
        resume=True,
        verbose=2,
    )
    print(vit.evaluate(test.evaluation(batch_size // microbatches, vit.preprocessing), return_dict=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/cifar10", help="folder of the run")
    parser.add_argument("--model", default="ViT-B/16:i21k")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--steps", type=int, help="10,000 at the paper's batch size")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--microbatches", type=int, default=16, help="parts of a batch, one after the other")
    parser.add_argument("--image-size", type=int, default=384)
    parser.add_argument("--precision", default="mixed_bfloat16")
    main(**vars(parser.parse_args()))
