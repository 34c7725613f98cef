"""How timm's config.json and transformers' preprocessor_config.json say that images become a model's input."""

from keras_vit.errors import ConfigError
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing
from keras_vit.zoo.formats.torch.stated import sides
from keras_vit.zoo.formats.torch.timm_config import pretrained_cfg

# transformers names interpolations by Pillow's numbers.
INTERPOLATIONS = {
    **{name: name for name in ("nearest", "bilinear", "bicubic")},
    **{"lanczos": "lanczos3", 0: "nearest", 1: "lanczos3", 2: "bilinear", 3: "bicubic"},
}
# Image processors to which a size of one number is both sides, and those to which it is the short one.
SQUASHING, KEEPING = ("ViT", "DeiT", "ViTHybrid"), ("Bit", "CLIP")
TIMM_CROP_MODES = ("center", "squash")
# Steps of transformers' image processors that no Preprocessing has.
OTHER_STEPS = ("do_pad", "do_thumbnail", "do_align_long_axis", "rescale_offset", "do_resize_to_multiple", "crop_pct")


class Unstated(Exception):
    """Files that do not state the input, or ask for what no Preprocessing has; the message ends a sentence."""


def stated_preprocessing(path, config_said, processor_said, config):
    """The Preprocessing that the files state for a model of that configuration, or why there is none."""
    try:
        cfg = pretrained_cfg(config_said)
        if cfg.get("mean") is not None and cfg.get("std") is not None:
            return of_timm(cfg, config)
        if "image_processor_type" in processor_said or "image_mean" in processor_said or "size" in processor_said:
            return of_transformers(processor_said, config)
        raise Unstated("has no JSON file beside it that states how images become its input")
    except Unstated as reason:
        return UnknownPreprocessing(f"{path.name} {reason}.")
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError, ConfigError) as error:
        return UnknownPreprocessing(f"The JSON files beside {path.name} state its input in no known way ({error}).")


def of_timm(cfg, config):
    mode = cfg.get("crop_mode") or "center"
    if mode not in TIMM_CROP_MODES:
        raise Unstated(f"crops by timm's crop_mode {mode!r}, which Preprocessing does not have")
    size = config.image_size or sides(cfg["input_size"][1:])
    crop, filter = cfg.get("crop_pct") or 0.875, interpolation(cfg.get("interpolation") or "bicubic")
    return Preprocessing(size, crop, filter, *channels(cfg["mean"], cfg["std"], config), crop_mode=mode)


def of_transformers(said, config):
    steps = [name for name in OTHER_STEPS if said.get(name)]
    if steps:
        raise Unstated(f"is fed with the step {steps[0]} of transformers, which Preprocessing does not have")
    size, crop, mode = size_and_crop(said)
    mean, std = normalization(said)
    fitting = config.image_size or size
    return Preprocessing(fitting, crop, interpolation(said.get("resample", 2)), *channels(mean, std, config), mode)


def interpolation(name):
    if isinstance(name, bool) or name not in INTERPOLATIONS:
        raise Unstated(f"resizes by {name!r}, which Preprocessing does not have")
    return INTERPOLATIONS[name]


def channels(mean, std, config):
    """Mean and deviation per channel of the model; a single number is every channel's."""
    both = []
    for values in (mean, std):
        values = [float(value) for value in (values if isinstance(values, list | tuple) else [values])]
        both.append(tuple(values * config.num_channels if len(values) == 1 else values))
        if len(both[-1]) != config.num_channels:
            raise Unstated(f"takes {config.num_channels} channels, and mean and deviation are stated of {len(values)}")
    return both


def normalization(said):
    """(mean, std) of pixels in [0, 1] that give what rescaling and normalizing pixels in [0, 255] give."""
    factor = said.get("rescale_factor", 1 / 255) if said.get("do_rescale", True) else 1
    mean, std = (said["image_mean"], said["image_std"]) if said.get("do_normalize", True) else ([0.0], [1.0])
    mean, std = (values if isinstance(values, list) else [values] for values in (mean, std))
    if factor == 1 / 255 or abs(factor * 255 - 1) < 1e-6:
        return mean, std
    return [value / (255 * factor) for value in mean], [value / (255 * factor) for value in std]


def size_and_crop(said):
    """((height, width), crop, crop_mode): what is left of a picture, and how it was resized before."""
    if not said.get("do_resize", True):
        raise Unstated("is fed with images that are not resized (do_resize false)")
    height, width, mode = resized(said)
    if not said.get("do_center_crop"):
        if mode == "center":
            raise Unstated("is fed with images of any aspect (shortest_edge without do_center_crop)")
        return (height, width), 1.0, mode
    part = said.get("crop_size", [height, width])
    part = sides([part["height"], part["width"]] if isinstance(part, dict) else part)
    if part is None or part[0] * width != part[1] * height or part[0] > height:
        raise Unstated(f"is fed with the part {said.get('crop_size')} of images of {said['size']}, of another shape")
    return part, part[0] / height, mode


def resized(said):
    """(height, width, crop_mode) that a picture is resized to."""
    size = said["size"]
    if isinstance(size, dict) and {"height", "width"} <= size.keys():
        return size["height"], size["width"], "squash"
    if isinstance(size, dict) and size.keys() == {"shortest_edge"}:
        return size["shortest_edge"], size["shortest_edge"], "center"
    kind = str(said.get("image_processor_type", said.get("feature_extractor_type", "ViT")))
    kind = kind.removesuffix("Fast").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
    if type(size) is int and kind in SQUASHING + KEEPING:
        return size, size, "squash" if kind in SQUASHING else "center"
    raise Unstated(f"is fed by {kind} with the size {size!r}, which this package does not know")
