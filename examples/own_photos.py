"""Your own photos, on a laptop: fine-tune a small ViT on a folder of class folders, then export it.

    python examples/own_photos.py photos --out runs/photos

photos/ holds a folder per class, cat/ and dog/ say. ViT-Ti/16 has 5.7 million parameters, for small machines. The
weights that it starts from, the recipe and the batch are those that the command takes.
The same from the shell: keras-vit finetune --data folder:photos --out runs/photos --model ViT-Ti/16
"""

import argparse
from pathlib import Path

import keras_vit


def main(photos, out, model, epochs, batch_size):
    weights, artefact = Path(f"{out}.npz"), Path(f"{out}.onnx")
    for path in (weights, artefact):
        if path.exists():
            raise SystemExit(f"{path} already exists. Choose another --out.")
    weights.parent.mkdir(parents=True, exist_ok=True)

    train = keras_vit.data.load(f"folder:{photos}", "train")
    held_out = keras_vit.data.load(f"folder:{photos}", "validation")
    recipe = keras_vit.training.recipe(
        "finetune-photos", examples=train.num_examples, epochs=epochs, batch_size=batch_size
    )
    vit = keras_vit.zoo.load(model, labels=train.class_names)
    parts = keras_vit.training.choose_microbatches(recipe.batch_size, vit.preprocessing.image_size)
    recipe.compile(vit, microbatches=parts)

    steps = train.steps_per_epoch(recipe.batch_size)
    vit.fit(
        train.train(recipe.batch_size, vit.preprocessing, augmentation=recipe.augmentation),
        epochs=-(-recipe.total_steps // steps),
        steps_per_epoch=steps,
        validation_data=held_out.evaluation(recipe.batch_size, vit.preprocessing),
    )
    keras_vit.zoo.save(vit, weights)
    print(keras_vit.export.convert(vit, artefact))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", help="folder of class folders")
    parser.add_argument("--out", default="photos", help="path of the results, without an ending")
    parser.add_argument("--model", default="ViT-Ti/16:augreg-i21k")
    parser.add_argument("--epochs", type=float, help="the recipe's 30 if not given")
    parser.add_argument("--batch-size", type=int, help="the recipe's, by the number of photos, if not given")
    main(**vars(parser.parse_args()))
