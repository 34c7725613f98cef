"""How timm's config.json and transformers' preprocessor_config.json say that images become a model's input."""

from keras_vit.errors import ConfigError
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing
from keras_vit.zoo.formats.torch.stated import as_size
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


def stated_preprocessing(name, config_json, processor_json, config):
    """The Preprocessing that the files beside the checkpoint `name` state for a model, or why there is none."""
    try:
        cfg = pretrained_cfg(config_json)
        if cfg.get("mean") is not None and cfg.get("std") is not None:
            return from_timm(cfg, config)
        if "image_processor_type" in processor_json or "image_mean" in processor_json or "size" in processor_json:
            return from_transformers(processor_json, config)
        raise Unstated("has no JSON file beside it that states how images become its input")
    except Unstated as reason:
        return UnknownPreprocessing(f"{name} {reason}.")
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError, ConfigError) as error:
        return UnknownPreprocessing(f"The JSON files beside {name} state its input in no known way ({error}).")


def from_timm(cfg, config):
    """The Preprocessing that the pretrained_cfg of timm's config.json states."""
    mode = cfg.get("crop_mode") or "center"
    if mode not in TIMM_CROP_MODES:
        raise Unstated(f"crops by timm's crop_mode {mode!r}, which Preprocessing does not have")
    mean, std = spread_over_channels(cfg["mean"], cfg["std"], config)
    return Preprocessing(
        image_size=config.image_size or as_size(cfg["input_size"][1:]),
        crop=cfg.get("crop_pct") or 0.875,
        interpolation=read_interpolation(cfg.get("interpolation") or "bicubic"),
        mean=mean,
        std=std,
        crop_mode=mode,
    )


def from_transformers(processor, config):
    """The Preprocessing that transformers' preprocessor_config.json states."""
    steps = [name for name in OTHER_STEPS if processor.get(name)]
    if steps:
        raise Unstated(f"needs the step {steps[0]} of transformers, which Preprocessing does not have")
    size, crop, mode = read_size(processor)
    mean, std = spread_over_channels(*read_mean_and_std(processor), config)
    return Preprocessing(
        image_size=config.image_size or size,
        crop=crop,
        interpolation=read_interpolation(processor.get("resample", 2)),
        mean=mean,
        std=std,
        crop_mode=mode,
    )


def read_interpolation(name):
    if isinstance(name, bool) or name not in INTERPOLATIONS:
        raise Unstated(f"resizes by {name!r}, which Preprocessing does not have")
    return INTERPOLATIONS[name]


def spread_over_channels(mean, std, config):
    """Mean and deviation per channel of the model; a single number is every channel's."""
    both = []
    for values in (mean, std):
        values = [float(value) for value in (values if isinstance(values, list | tuple) else [values])]
        both.append(tuple(values * config.num_channels if len(values) == 1 else values))
        if len(both[-1]) != config.num_channels:
            raise Unstated(f"takes {config.num_channels} channels, and mean and deviation are stated of {len(values)}")
    return both


def read_mean_and_std(processor):
    """(mean, std) for pixels in [0, 1], equal to rescaling and normalizing pixels in [0, 255]."""
    factor = processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1
    normalizes = processor.get("do_normalize", True)
    mean, std = (processor["image_mean"], processor["image_std"]) if normalizes else ([0.0], [1.0])
    mean, std = (values if isinstance(values, list) else [values] for values in (mean, std))
    if factor == 1 / 255 or abs(factor * 255 - 1) < 1e-6:
        return mean, std
    return [value / (255 * factor) for value in mean], [value / (255 * factor) for value in std]


def read_size(processor):
    """((height, width), crop, crop_mode): what is left of an image, and how it was resized before."""
    if not processor.get("do_resize", True):
        raise Unstated("takes images that are not resized (do_resize false)")
    height, width, mode = read_resized_size(processor)
    if not processor.get("do_center_crop"):
        if mode == "center":
            raise Unstated("takes images of any aspect (shortest_edge without do_center_crop)")
        return (height, width), 1.0, mode
    stated = processor.get("crop_size", [height, width])
    crop = as_size([stated["height"], stated["width"]] if isinstance(stated, dict) else stated)
    if crop is None or crop[0] * width != crop[1] * height or crop[0] > height:
        raise Unstated(f"crops images of size {processor['size']} to {stated}, larger or of another aspect")
    return crop, crop[0] / height, mode


def read_resized_size(processor):
    """(height, width, crop_mode) that an image is resized to."""
    size = processor["size"]
    if isinstance(size, dict) and {"height", "width"} <= size.keys():
        return size["height"], size["width"], "squash"
    if isinstance(size, dict) and size.keys() == {"shortest_edge"}:
        return size["shortest_edge"], size["shortest_edge"], "center"
    kind = str(processor.get("image_processor_type", processor.get("feature_extractor_type", "ViT")))
    kind = kind.removesuffix("Fast").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
    if type(size) is int and kind in SQUASHING + KEEPING:
        return size, size, "squash" if kind in SQUASHING else "center"
    raise Unstated(f"is prepared by {kind} with the size {size!r}, which this package does not know")
