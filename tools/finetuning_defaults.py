"""Which learning rate suits some hundred pictures? Fine-tunes checkpoints to folders at several rates, a CSV line each.

    python tools/finetuning_defaults.py --model ViT-Mini/4:fashion-mnist --model R20x0.5:fashion-mnist \\
        --data folder:emoji_google:300 --data folder:crops:200 --data folder:mnist:200 \\
        --rate 0.003 --rate 0.01 --rate 0.03

The number after a folder is how many of its pictures are trained on. Everything else is what `keras-vit finetune`
takes by default: 30 epochs, about eight batches each. Lines that the CSV has are not run again. `--rate recipe` is the
rate of Table 4 for CIFAR-10 at 512 images, scaled to the batch. docs/finetuning.md has what came out.
"""

import argparse
import csv
from pathlib import Path

import keras

from keras_vit import data, training, zoo
from keras_vit.training.recipe_rows import EPOCHS
from keras_vit.training.scaling import choose_batch_size

FIELDS = ("model", "data", "images", "rate", "seed", "learning_rate", "batch_size", "steps", "accuracy", "held_out")


def finetune(model_name, dataset, images, rate, seed):
    """Learning rate, batch size, steps, accuracy of the last weights, and images measured on, of one training."""
    keras.utils.set_random_seed(seed)
    train, held_out = data.load(dataset, "train", examples=images, seed=seed), data.load(dataset, "validation")
    told = {} if rate == "recipe" else {"learning_rate": float(rate)}
    batch_size = choose_batch_size(training.recipe("finetune-cifar10").batch_size, images, paper=False)
    recipe = training.recipe(
        "finetune-cifar10", batch_size=batch_size, examples=images, epochs=EPOCHS, image_size=None, **told
    )
    model = zoo.load(model_name, labels=train.class_names, **recipe.model_arguments)
    recipe.compile(model)
    batches = train.train(
        batch_size, model.preprocessing, augmentation=recipe.augmentation, seed=seed, steps=recipe.total_steps
    )
    model.fit(batches, verbose=0)
    accuracy = model.evaluate(held_out.evaluation(64, model.preprocessing), return_dict=True, verbose=0)["accuracy"]
    return recipe.learning_rate, batch_size, recipe.total_steps, round(accuracy, 4), held_out.num_examples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, help="a checkpoint's name or path; repeat for more")
    parser.add_argument("--data", action="append", required=True, help="DATASET:IMAGES, as folder:photos:200; repeat")
    parser.add_argument("--rate", action="append", required=True, help="a learning rate, or recipe; repeat")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--csv", type=Path, default=Path("finetuning_defaults.csv"))
    args = parser.parse_args()
    if not args.csv.exists():
        args.csv.write_text(",".join(FIELDS) + "\n", "utf-8")
    with args.csv.open(encoding="utf-8", newline="") as file:
        done = {tuple(row[name] for name in FIELDS[:5]) for row in csv.DictReader(file)}
    runs = [
        (model, *data.rpartition(":")[::2], rate, str(seed))
        for seed in range(args.seeds)
        for rate in args.rate
        for data in args.data
        for model in args.model
    ]
    for run in runs:
        if run in done:
            continue
        model, dataset, images, rate, seed = run
        found = finetune(model, dataset, int(images), rate, int(seed))
        with args.csv.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow((*run, *found))
        print(*run, *found, flush=True)
        keras.backend.clear_session()


if __name__ == "__main__":
    main()
