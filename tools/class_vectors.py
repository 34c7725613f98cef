"""Vectors of class names for `keras_vit.zoo.zero_shot`, by the text tower of a CLIP or SigLIP of transformers.

    python tools/class_vectors.py openai/clip-vit-base-patch32 pets.npz cat dog "sleeping dog"
    python tools/class_vectors.py google/siglip2-base-patch16-224 pets.npz --names names.txt --prompts prompts.txt

needs transformers and torch, here alone. The .npz holds what `zero_shot` takes beside the model of images:

    towers = keras_vit.zoo.load("hf://openai/clip-vit-base-patch32")
    model = keras_vit.zoo.zero_shot(towers, **np.load("pets.npz"))

A class has the mean of the vectors, of length 1, of its prompts: texts in which {} is its name.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from random_models import import_transformers

# By the model's type: a prompt as its authors use it, and what makes probabilities of its logits.
KINDS = {
    "clip": ("a photo of a {}.", "softmax"),
    "metaclip_2": ("a photo of a {}.", "softmax"),
    "siglip": ("This is a photo of {}.", "sigmoid"),
}
TEXTS_AT_ONCE = 64


def tokenize(texts, tokenizer, config):
    """The tokens of texts as the model was trained: SigLIP's in small letters, filled up to one length, unmasked."""
    if config.model_type != "siglip":
        return tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    length = config.text_config.max_position_embeddings
    texts = [text.lower() for text in texts]
    tokens = tokenizer(texts, padding="max_length", max_length=length, truncation=True, return_tensors="pt")
    return {"input_ids": tokens["input_ids"]}


def embed(texts, model, tokenizer):
    """Texts as vectors (n, d) of length 1."""
    import torch

    parts = []
    for at in range(0, len(texts), TEXTS_AT_ONCE):
        with torch.no_grad():
            found = model.get_text_features(**tokenize(texts[at : at + TEXTS_AT_ONCE], tokenizer, model.config))
        parts.append(found.pooler_output.double().numpy())
    vectors = np.concatenate(parts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_class_vectors(model, tokenizer, names, prompts=()):
    """The arguments of `zero_shot` beside its model, {name: array}.

    Args:
        model: a CLIPModel or SiglipModel of transformers.
        tokenizer: its tokenizer.
        names: of the classes.
        prompts: texts with {} for the name; none for that of the model's authors.
    """
    prompt, probabilities = KINDS[model.config.model_type]
    prompts = tuple(prompts) or (prompt,)
    texts = [each.replace("{}", name) for name in names for each in prompts]
    vectors = embed(texts, model.eval(), tokenizer).reshape(len(names), len(prompts), -1).mean(axis=1)
    bias = getattr(model, "logit_bias", None)
    return {
        "class_vectors": vectors.astype("float32"),
        "labels": np.array(names),
        "scale": np.array(model.logit_scale.exp().item()),
        "bias": np.array(0.0 if bias is None else bias.item()),
        "probabilities": np.array(probabilities),
    }


def read_lines(path):
    return [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a repository of the Hub, or a folder")
    parser.add_argument("out", type=Path, help="the .npz file to write")
    parser.add_argument("names", nargs="*", help="of the classes")
    parser.add_argument("--names", dest="file", type=Path, help="a file with a name on each line")
    parser.add_argument("--prompts", type=Path, help="a file with a text on each line, {} for the name")
    arguments = parser.parse_args()
    names = arguments.names + (read_lines(arguments.file) if arguments.file else [])
    prompts = read_lines(arguments.prompts) if arguments.prompts else ()
    if not names or any("{}" not in prompt for prompt in prompts):
        parser.error("Name the classes, on the command line or by --names, and write {} for the name in each prompt.")
    transformers = import_transformers()
    config = transformers.AutoConfig.from_pretrained(arguments.model)
    if config.model_type not in KINDS:
        sys.exit(f"{arguments.model} is a {config.model_type}; this makes vectors of {', '.join(KINDS)} only.")
    model = transformers.AutoModel.from_pretrained(arguments.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    np.savez(arguments.out, **make_class_vectors(model, tokenizer, names, prompts))
    print(f"{arguments.out}: {len(names)} classes")


if __name__ == "__main__":
    main()
