"""timm's config.json: the model that an architecture's name and its arguments make, and the input of its weights."""

import functools
import importlib.resources
import json
import logging

from keras_vit.zoo.formats.torch.stated import Stated, require_stated, sides

log = logging.getLogger("keras_vit")

# Arguments that change no answer, or that the tensors' names and shapes show and `read_config` reads.
HARMLESS = {
    *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate"),
    *("weight_init", "fix_init", "zero_init_last", "dynamic_img_size", "dynamic_img_pad", "device", "dtype"),
    *("patch_size", "embed_dim", "depth", "num_heads", "mlp_ratio", "in_chans", "num_classes", "img_size"),
    *("class_token", "global_pool", "fc_norm", "pool_include_prefix", "no_embed_class", "act_layer", "norm_layer"),
    *("layers", "width_factor", "stem_chs", "channels"),
}
# The only values, of other arguments, that models of this package follow; the first is the default.
VIT_VALUES = {
    "qkv_bias": (True,),
    "qk_norm": (False,),
    "scale_attn_norm": (False,),
    "scale_mlp_norm": (False,),
    "proj_bias": (True,),
    "init_values": (None,),
    "pos_embed": ("learn",),
    "reg_tokens": (0,),
    "pre_norm": (False,),
    "final_norm": (True,),
    "embed_norm_layer": (None,),
    "block_fn": ("Block",),
    "mlp_layer": ("Mlp", "mlp"),
    "attn_layer": ("Attention", "attn"),
    "distilled": (False,),
    "padding_same": (True,),
}
BIT_VALUES = {
    "output_stride": (32,),
    "stem_type": ("fixed",),
    "avg_down": (False,),
    "preact": (True,),
    "basic": (False,),
    "bottle_ratio": (0.25,),
    "act_layer": ("relu",),
    "norm_layer": ("GroupNormAct", "groupnormact", "groupnorm"),
    "conv_layer": ("StdConv2d eps=1e-08",),
    "global_pool": ("avg",),
}
GELU_BY_TANH = {"gelu": False, "gelu_tanh": True}
EPSILONS = {"layernorm": 1e-6, "layernormfp32": 1e-6, "layernorm 1e-05": 1e-5}


@functools.cache
def architectures():
    """{architecture: the arguments its name stands for, or another name of the same}."""
    file = importlib.resources.files("keras_vit.zoo.formats.torch").joinpath("timm_architectures.json")
    return json.loads(file.read_text("utf-8"))["architectures"]


def implied(architecture):
    """The arguments that a name of timm stands for, a tag left out; None for a name that is not known."""
    known = architectures()
    found = known.get(str(architecture).partition(".")[0])
    return known[found] if isinstance(found, str) else found


def pretrained_cfg(said):
    """The part on the weights; the oldest files have it at the top."""
    inner = said.get("pretrained_cfg")
    return inner if isinstance(inner, dict) else said


def arguments(said):
    """Every argument that config.json states of its model, by the architecture's name or itself."""
    given = said.get("model_args")
    top = {name: said[name] for name in ("global_pool", "num_classes") if said.get(name) is not None}
    return {**(implied(said.get("architecture")) or {}), **top, **(given if isinstance(given, dict) else {})}


def warn_of_unknown(path, architecture):
    if architecture is not None and implied(architecture) is None:
        log.warning(
            "%s is of timm's architecture %r, by the config.json beside it, which this package does not know: what the "
            "file leaves out is taken to be timm's default, such as exact GELU.",
            *(path, architecture),
        )


def stated_vit(path, said, tensors):
    """The `Stated` of a ViT or hybrid.

    Raises:
        CheckpointError: for arguments that make another function of the same tensors, and unknown ones.
    """
    args = arguments(said)
    warn_of_unknown(path, said.get("architecture"))
    require_values(path, args, VIT_VALUES)
    require_pooling(path, args, said)
    heads = args.get("num_heads")
    return Stated(
        num_heads=heads if type(heads) is int and heads > 0 else None,
        image_size=stated_size(args, said),
        fields=numerics(path, args),
        shapes=shapes(args),
        patch_positions=args.get("no_embed_class") is True,
        assume_heads=said.get("architecture") is None or implied(said["architecture"]) is not None,
    )


def stated_bit(path, said, tensors):
    """The `Stated` of a ResNet; raises as `stated_vit` does."""
    args = arguments(said)
    require_values(path, args, BIT_VALUES)
    return Stated(shapes={"num_classes": args["num_classes"]} if type(args.get("num_classes")) is int else {})


def require_values(path, args, values):
    for name, value in args.items():
        if name in values:
            default = values[name][0]
            require_stated(path, value in values[name] or value is None, f"{name}={value!r}", f"{name}={default!r}")
        else:
            require_stated(path, name in HARMLESS, f"the argument {name}={value!r}", "the arguments it knows")


def require_pooling(path, args, said):
    """Ours pools by the class token, or averages where there is none; both after the last norm."""
    token, pool = args.get("class_token", True), args.get("global_pool", "token")
    if "global_pool" in args or implied(said.get("architecture")) is not None:
        require_stated(
            path,
            (bool(token), pool) in ((True, "token"), (False, "avg")),
            f"{'a' if token else 'no'} class token and global_pool={pool!r}",
            "'token' with a class token, and 'avg' without one",
        )


def numerics(path, args):
    """Fields of the configuration: activation and epsilon."""
    activation = args.get("act_layer") or "gelu"
    known = isinstance(activation, str) and activation in GELU_BY_TANH
    require_stated(path, known, f"act_layer={activation!r}", " and ".join(GELU_BY_TANH))
    norm = args.get("norm_layer") or "layernorm"
    norm = norm.replace("_", "").lower() if isinstance(norm, str) else repr(norm)
    require_stated(path, norm in EPSILONS, f"norm_layer={norm!r}", "layer norm")
    return {"gelu_approximate": GELU_BY_TANH[activation], "layer_norm_epsilon": EPSILONS[norm]}


def shapes(args):
    names = {"embed_dim": "hidden_size", "depth": "num_layers", "num_classes": "num_classes"}
    found = {ours: args[theirs] for theirs, ours in names.items() if type(args.get(theirs)) is int}
    patch = sides(args.get("patch_size"))
    return found if patch is None else {**found, "patch_size": patch}


def stated_size(args, said):
    given = pretrained_cfg(said).get("input_size")
    return sides(args.get("img_size")) or sides(given[1:] if isinstance(given, list) else None)
