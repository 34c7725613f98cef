"""`python hub_openers.py LIBRARY FOLDER`: opens a folder for the Hub with a library of others, and prints how far its
outputs are from those in FOLDER.npz, by the largest of them."""

import sys

import numpy as np

OPERATORS = ("nms", "qnms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")


def stand_in_for_torchvision():
    """The names of operators that timm and transformers import, where torchvision has no build."""
    import torch

    try:
        import torchvision  # noqa: F401
    except Exception:
        for name in list(sys.modules):
            if name.partition(".")[0] == "torchvision":
                del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in OPERATORS:
            library.define(f"{name}(Tensor a) -> Tensor")
            library.define(f"_{name}_backward(Tensor a) -> Tensor")
        return library


def by_transformers(folder, images, classifies):
    import torch
    import transformers

    auto = transformers.AutoModelForImageClassification if classifies else transformers.AutoModel
    model, report = auto.from_pretrained(folder, output_loading_info=True)
    assert {name for names in report.values() for name in names} <= {"pooler.dense.weight", "pooler.dense.bias"}
    with torch.no_grad():
        found = model.eval()(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    return (found.logits if classifies else found.last_hidden_state[:, 0]).numpy()


def by_timm(folder, images, classifies):
    import timm
    import torch

    model = timm.create_model(f"local-dir:{folder}/timm", pretrained=True).eval()
    with torch.no_grad():
        return model(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()


def by_keras_hub(folder, images, classifies):
    import keras
    import keras_hub

    model = keras_hub.models.ViTImageClassifier.from_preset(folder, preprocessor=None)
    return keras.ops.convert_to_numpy(model(images))


if __name__ == "__main__":
    _, library, folder = sys.argv
    kept = stand_in_for_torchvision() if library != "keras_hub" else None
    with np.load(f"{folder}.npz") as file:
        images, outputs = file["images"], file["outputs"]
    classifies = outputs.shape[1] == 5
    found = globals()[f"by_{library}"](folder, images, classifies)
    print(np.abs(found - outputs).max() / np.abs(outputs).max())
