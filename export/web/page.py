"""web/ of a bundle: index.html, one script, one style sheet, the model for browsers, model.json and examples.

The page needs the network only for onnxruntime-web, and not at all if `vendor` puts that beside it. A browser opens it
from any server of static files, such as `keras-vit serve`, but not from the disk.
"""

import dataclasses
import json

import numpy as np

from keras_vit.errors import ExportError, ParityError
from keras_vit.export.conversion import write_proved
from keras_vit.export.description import describe_preprocessing
from keras_vit.export.formats import format_named
from keras_vit.export.preparation import generate_images
from keras_vit.export.proof.comparison import compute_outputs
from keras_vit.export.web import VENDORED, copy_runtime, describe_runtime, fetch_runtime, page_texts
from keras_vit.images.pillow import ORIENTATION, read_image

FILE = "model.onnx"
LARGEST = 18 * 10**8  # bytes of a model in one file: a browser's buffers hold 2 GB
CHANNELS = (1, 3)
MOST_REFERENCES = 1000
ATTENTION = "attention"  # the optional output (n, blocks, heads, tokens, tokens)

# The sample pictures of a page.
SHOWN = 4
LONGEST = 1024  # pixels of a picture's longer side
SIZES = ((301, 224), (223, 330))  # (height, width) of photographs, so that they must be resized
LYING = 6  # EXIF 2.3, section 4.6.4: to be turned clockwise by 90 degrees


def describe_references(references, width):
    """The references of a page of vectors, as entries of its model.json; {} without references, as for classes."""
    if references is None:
        return {}
    names, vectors = list(map(str, references[0])), np.asarray(references[1], "float64")
    if vectors.shape != (len(names), width) or not 0 < len(names) <= MOST_REFERENCES:
        raise ExportError(
            f"A page compares with 1 to {MOST_REFERENCES:,} names and as many vectors of {width} numbers. Received: "
            f"{len(names):,} names and vectors of the shape {vectors.shape}."
        )
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo("float64").tiny)
    return {"labels": names, "probabilities": "cosine", "references": vectors.round(7).tolist()}


def gives_patches(source):
    """Whether the model's output is a vector for each patch, (n, patches, d) or (n, rows, columns, d)."""
    config = getattr(source.model, "config", None)
    return getattr(config, "classifier", None) == "patches" and not getattr(config, "num_classes", None)


def require_page(source, vendor, references):
    """Raises, before any work, unless the runtime is there and the page can feed the model: one image in, logits out,
    or logits of every pixel."""
    shapes = [tuple(tensor.shape) for tensor in (*source.functional.inputs, *source.functional.outputs)]
    ranks = [[4, 3], [4, 4]] if gives_patches(source) else [[4, 2], [4, 4]]
    if describe_preprocessing(source.preprocessing) is None:
        raise ExportError(
            f"A page prepares pictures as the model says, but {source.model.name!r}'s preprocessing is unknown. "
            "Give preprocessing= to zoo.load, or leave out the page."
        )
    if [len(shape) for shape in shapes] not in ranks or shapes[0][-1] not in CHANNELS:
        raise ExportError(
            "A page takes pictures (n, height, width, 1 or 3) and shows one row of numbers for each, each pixel or "
            f"each patch. Received: a model of the inputs and outputs {shapes}. Leave out the page."
        )
    if shapes[0][0] not in (None, 1):
        raise ExportError(
            f"A page asks for one picture at a time, but the model's batch is fixed at {shapes[0][0]}. Build it with a "
            "free batch, or leave out the page."
        )
    describe_references(references, shapes[1][-1])
    is_vector = source.describe(source.choose_shapes())["probabilities"] is None
    if is_vector and references is None and not gives_patches(source):
        raise ExportError(
            f"A page of vectors shows which references are nearest, and {source.model.name!r} has no classes. Give "
            "references=(names, vectors), or leave out the page."
        )
    if vendor:
        fetch_runtime()


def choose_pictures(pictures, inputs, preprocessing):
    """Chooses up to SHOWN uint8 images (h, w, c): given ones, or two of the bundle's examples and two photographs."""
    if pictures is not None and len(pictures):
        for picture in pictures:
            if getattr(picture, "dtype", None) != "uint8" or np.ndim(picture) != 3:
                received = f"{getattr(picture, 'dtype', type(picture).__name__)}, shape {np.shape(picture)}"
                raise ExportError(f"pictures are uint8 images (height, width, channels). Received: {received}.")
        return list(pictures)[:SHOWN]
    photographs = [next(generate_images(*size, seed=seed)) for seed, size in enumerate(SIZES, 3)]
    pixels = (inputs[:2] * np.asarray(preprocessing.std) + np.asarray(preprocessing.mean)) * 255
    return [*np.clip(np.rint(pixels), 0, 255).astype("uint8"), *photographs]


def write_pictures(folder, pictures):
    """Writes pictures, uint8 (h, w, c), and returns the files' names; the last is a JPEG on its side."""
    from PIL import Image

    names = []
    for number, pixels in enumerate(pictures, 1):
        image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        image.thumbnail((LONGEST, LONGEST))
        names.append(f"{number - 1}.{'png' if number < len(pictures) else 'jpg'}")
        if number < len(pictures):
            image.save(folder / names[-1])
        else:
            exif = Image.Exif()
            exif[ORIENTATION] = LYING
            image.transpose(Image.Transpose.ROTATE_90).save(folder / names[-1], quality=95, subsampling=0, exif=exif)
    return names


def write_examples(folder, pictures, source, inputs):
    """Writes pictures and, beside each, the model's input for it as little-endian float32.

    Args:
        pictures: uint8 images (h, w, c) of any size; the first four are shown.
        inputs: float32 (n, h, w, c), the bundle's examples.

    Returns:
        A list of {"file": the picture, "input": the file beside it, "logits": the model's, or the name of their file}.
    """
    entries = []
    channels = inputs.shape[-1]
    preprocessing = source.preprocessing
    for name in write_pictures(folder, choose_pictures(pictures, inputs, preprocessing)):
        x = np.asarray(preprocessing(read_image(folder / name, channels)[None]), "<f4")
        raw = f"{name.partition('.')[0]}.f32"
        (folder / raw).write_bytes(x.tobytes())
        logits = compute_outputs(source.functional, [x])[0][0]
        if logits.ndim == 1:
            entries.append({"file": name, "input": raw, "logits": logits.astype(float).tolist()})
        else:  # of every pixel
            entries.append({"file": name, "input": raw, "logits": f"{len(entries) + SHOWN}.f32"})
            (folder / entries[-1]["logits"]).write_bytes(logits.astype("<f4").tobytes())
    return entries


def read_grid(source):
    """(rows, columns) of the output if that is a map, otherwise of the model's patches; None if unknown."""
    shape = source.functional.outputs[0].shape
    grid = shape[1:3] if len(shape) == 4 else getattr(getattr(source.model, "config", None), "grid", None)
    return grid and list(grid)


def write_model(source, folder, tell):
    """Writes the page's model, compared like every artefact; returns its entry in model.json."""
    onnx, path, model = format_named("onnx"), folder / FILE, source.model
    classifies = len(source.functional.outputs[0].shape) == 2
    shows_attention = classifies and read_grid(source) and callable(getattr(model, ATTENTION, None))
    endpoints = (ATTENTION,) if shows_attention else ()
    try:
        report = write_proved(source, onnx, path, "dynamic", endpoints, tell=lambda line: tell(f"web: {line}"))
    except ParityError as error:
        tell(f"web: in int8 the model's outputs differ too much, so the page has it in float32. {error}")
        report = write_proved(source, onnx, path, None, endpoints)
    if report.bytes > LARGEST:
        raise ExportError(
            f"The model {model.name!r} takes {report.bytes / 1e9:.1f} GB; a browser holds 2 GB, and a page takes up to "
            f"{LARGEST / 1e9:.1f} GB. "
            "Leave out the page, or choose a smaller model."
        )
    tell(f"web: {FILE}, {report.quantize or 'float32'}, {report.bytes / 1e6:.1f} MB")
    named = ("quantize", "bytes", "tolerance", "max_rel_diff")
    return {"file": FILE, **{name: getattr(report, name) for name in named}}


def write_page(source, folder, about, inputs, *, pictures, references, vendor, tell):
    """Writes the page of a bundle into a new folder, from its model.json and the inputs of its examples.

    See `bundle` for the other arguments.
    """
    (folder / "examples").mkdir(parents=True)
    if not about["labels"] and references is None and not gives_patches(source):
        tell("web: the model has no labels; the page shows the numbers of its classes. zoo.load(labels=) names them")
    entry = write_model(dataclasses.replace(source, batch_size=None), folder, tell)
    examples = write_examples(folder / "examples", pictures, source, *inputs)
    runtime = describe_runtime(vendor)
    if vendor:
        tell(f"web: copying onnxruntime-web, {runtime['bytes'] / 1e6:.0f} MB")
        copy_runtime(folder / VENDORED)
    contents = {name: about[name] for name in ("name", "labels", "probabilities", "preprocessing")}
    contents |= describe_references(references, source.functional.outputs[0].shape[-1])
    if gives_patches(source):
        contents["probabilities"] = "patches"
    elif len(source.functional.outputs[0].shape) == 4:
        contents["probabilities"] = "mask"
    reads_token = getattr(getattr(source.model, "config", None), "classifier", None) == "token"
    contents |= {"channels": inputs[0].shape[-1], "grid": read_grid(source), "readsToken": reads_token}
    contents |= {"model": entry, "examples": examples, "runtime": runtime}
    (folder / "model.json").write_text(json.dumps(contents) + "\n", "utf-8")
    for name, text in page_texts(about["name"], vendor).items():
        (folder / name).write_text(text, "utf-8")
