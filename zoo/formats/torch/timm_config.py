"""timm's config.json: the model made by an architecture's name and arguments, and the input of its weights."""

import functools
import json
from dataclasses import replace
from pathlib import Path

from keras_vit.console import log
from keras_vit.zoo.formats.checkpoint import Fault
from keras_vit.zoo.formats.torch.stated import (
    BY_TANH,
    EXACT,
    Stated,
    as_size,
    pretrained_cfg,
    require_stated,
    require_values,
)

# Arguments that do not change outputs, or that `read_config` reads from the tensors' names and shapes.
HARMLESS = {
    *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate"),
    *("weight_init", "fix_init", "zero_init_last", "dynamic_img_size", "dynamic_img_pad", "device", "dtype"),
    *("patch_size", "embed_dim", "depth", "num_heads", "mlp_ratio", "in_chans", "num_classes", "img_size"),
    *("class_token", "global_pool", "fc_norm", "no_embed_class", "act_layer", "norm_layer"),
    *("init_values", "layers", "width_factor", "stem_chs", "channels", "pre_norm", "reg_tokens", "qkv_bias"),
    *("swiglu_mlp", "num_reg_tokens", "qkv_fused", "head_init_scale", "swiglu_align_to"),
    *("rope_shift_coords", "rope_jitter_coords", "rope_rescale_coords", "ref_feat_shape"),
}
# The values of other arguments that models of this package can follow; the first is the default.
VIT_VALUES = {
    "qk_norm": (False,),
    "scale_attn_norm": (False,),
    "scale_mlp_norm": (False,),
    "proj_bias": (True,),
    "pos_embed": ("learn",),
    "final_norm": (True,),
    "embed_norm_layer": (None,),
    "block_fn": ("Block",),
    "mlp_layer": ("Mlp", "mlp", "GluMlp act_layer=SiLU gate_last=False"),
    "attn_layer": ("Attention", "attn"),
    "distilled": (False,),
    "padding_same": (True,),
    "pool_include_prefix": (False,),
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
# Values for timm's class Eva: those of EVA-01, or of DINOv3 if positions are rotary.
EVA_VALUES = {
    "use_rel_pos_bias": (False,),
    "use_shared_rel_pos_bias": (False,),
    "use_rot_pos_emb": (False,),
    "use_abs_pos_emb": (True,),
    "use_post_transformer_norm": (None,),
    "class_token": (True,),
    "qk_norm": (False,),
    "scale_mlp": (False,),
    "scale_attn_inner": (False,),
    "attn_type": ("eva",),
    "num_kv_heads": (None,),
    "attn_pool_num_heads": (None,),
    "attn_pool_mlp_ratio": (None,),
    "rope_mrope_section": (None,),
    "attn_only_layer_scale": (False,),
    "use_post_norm": (False,),
    "use_pre_transformer_norm": (False,),
    "global_pool": ("avg", "token"),
    "qkv_fused": (True,),  # affects only how they are stored
}
DINOV3_VALUES = EVA_VALUES | {
    "use_rot_pos_emb": (True,),
    "use_abs_pos_emb": (False,),
    "rope_type": ("dinov3",),
    "rope_temperature": (100.0, 100),
    "rope_rotate_half": (True,),
    "rope_grid_offset": (0.0, 0),
    "rope_grid_indexing": ("ij",),
    "use_fc_norm": (False,),
    "use_post_transformer_norm": (True,),
}
# Arguments that the class VisionTransformer does not have.
EVA_ALONE = (
    "use_rot_pos_emb",
    "use_rel_pos_bias",
    "use_shared_rel_pos_bias",
    "attn_type",
    "swiglu_mlp",
    "use_post_norm",
)
NOT_EVAS_DEFAULTS = (
    "use_rot_pos_emb",
    "use_abs_pos_emb",
    "rope_type",
    "rope_temperature",
    "rope_rotate_half",
    "use_fc_norm",
)
ACTIVATIONS: dict[str, dict] = {
    "gelu": EXACT,
    "gelu_tanh": BY_TANH,
    "quick_gelu": {"activation": "quick_gelu"},
    "silu": {"activation": "silu"},
    "SiLU": {"activation": "silu"},
}
POOLS = {"token": "token", "avg": "gap", "map": "map"}  # {global_pool: `classifier`}, the input of the head
QUICK_TAGS = ("openai", "dfn", "metaclip")  # of CLIP's weights
EPSILONS = {"layernorm": 1e-6, "layernormfp32": 1e-6, "layernorm 1e-05": 1e-5}


@functools.cache
def read_architectures():
    """{architecture: its arguments, or another name of the same architecture}."""
    return json.loads(Path(__file__).with_name("timm_architectures.json").read_text("utf-8"))["architectures"]


def arguments_of(architecture):
    """The arguments of a name of timm, without its tag; None for an unknown name."""
    known = read_architectures()
    row = known.get(str(architecture).partition(".")[0])
    return known[row] if isinstance(row, str) else row


def stated_arguments(config_json):
    """All arguments of the model in config.json, by the architecture's name or directly."""
    given = config_json.get("model_args")
    top = {name: config_json[name] for name in ("global_pool", "num_classes") if config_json.get(name) is not None}
    by_name = arguments_of(config_json.get("architecture")) or {}
    return {**by_name, **top, **(given if isinstance(given, dict) else {})}


def read_shapes(args):
    names = {"embed_dim": "hidden_size", "depth": "num_layers", "num_classes": "num_classes"}
    found = {ours: args[theirs] for theirs, ours in names.items() if type(args.get(theirs)) is int}
    patch = as_size(args.get("patch_size"))
    return found if patch is None else {**found, "patch_size": patch}


def stated_size(args, config_json):
    given = pretrained_cfg(config_json).get("input_size")
    return as_size(args.get("img_size")) or as_size(given[1:] if isinstance(given, list) else None)


def state(args, config_json, fields, names):
    """Makes the `Stated` from arguments; `names` are further names of shapes, {timm's: ours}."""
    architecture, heads = config_json.get("architecture"), args.get("num_heads")
    is_known = architecture is None or arguments_of(architecture) is not None
    if isinstance(args.get("init_values"), int | float):
        fields = {**fields, "layer_scale": args["init_values"]}
    shapes = read_shapes(args) | {ours: args[theirs] for theirs, ours in names.items() if args.get(theirs) is not None}
    return Stated(
        num_heads=heads if type(heads) is int and heads > 0 else None,
        image_size=stated_size(args, config_json),
        fields=fields,
        shapes=shapes,
        assume_heads=is_known,
        unknown_architecture=None if is_known else str(architecture),
    )


def require_arguments(args, values):
    """Refuses unknown arguments, and values that change the function."""
    require_values({name: value for name, value in args.items() if value is not None}, values)
    expected = "models with the arguments it knows"
    for name, value in args.items():
        require_stated(name in values or name in HARMLESS, f"the argument {name}={value!r}", expected)


def read_pooling(args, architecture, tensors):
    """{"classifier": the kind of pooling}; {} if nothing is stated.

    If a model with a class token averages, its mean has a separate norm, unless fc_norm=False is stated.
    """
    token, pool = bool(args.get("class_token", True)), args.get("global_pool", "token")
    if "global_pool" not in args and arguments_of(architecture) is None:
        return {}
    require_stated(
        isinstance(pool, str)
        and pool in POOLS
        and (token or pool != "token")
        and ((token, pool) != (True, "avg") or args.get("fc_norm") is False or "fc_norm.weight" in tensors),
        f"{'a' if token else 'no'} class token and global_pool={pool!r}",
        "'token' with a class token, 'map', and 'avg' with the norm that fc_norm says",
    )
    return {"classifier": POOLS[pool]}


def read_numerics(args, architecture):
    """Fields of the configuration: epsilon, and activation if the architecture or an argument states it."""
    activation = args.get("act_layer") or "gelu"
    known = isinstance(activation, str) and activation in ACTIVATIONS
    require_stated(known, f"act_layer={activation!r}", " and ".join(ACTIVATIONS))
    if architecture is None and not args.get("norm_layer"):
        return ACTIVATIONS[activation] if args.get("act_layer") else {}
    norm = args.get("norm_layer") or "layernorm"
    norm = norm.replace("_", "").lower() if isinstance(norm, str) else repr(norm)
    require_stated(norm in EPSILONS, f"norm_layer={norm!r}", "layer norm")
    tells = args.get("act_layer") or arguments_of(architecture) is not None
    return {"layer_norm_epsilon": EPSILONS[norm], **(ACTIVATIONS[activation] if tells else {})}


def read_last_norm(tensors, pooling):
    """Adds to the pooling whether the last norm is after the mean of the patches, or before the pooling, by its name.

    If the class token is taken, the order makes no difference.
    """
    if {"norm.weight", "fc_norm.weight"} <= tensors.keys():
        raise Fault("holds norm.weight and fc_norm.weight: its model has norms before and after pooling; ours one.")
    if "fc_norm.weight" not in tensors or pooling.get("classifier") == "token":
        return pooling
    return {"classifier": "gap", **pooling, "norm_after_pool": True}


def warn_of_quick_gelu(config_json):
    """Warns if a name of timm's computes GELU with weights that were trained with QuickGELU."""
    name = str(config_json.get("architecture"))
    tag = name.partition(".")[2] or str(pretrained_cfg(config_json).get("tag"))
    if "_clip_quickgelu" not in name and "_clip_" in name and tag.startswith(QUICK_TAGS):
        log.warning(
            "%s.%s: these weights were trained with QuickGELU, and timm computes GELU under this name. Pass "
            "activation='quick_gelu' for what they were trained for.",
            *(name.partition(".")[0], tag),
        )


def timm_vit(config_json, tensors):
    args, architecture = stated_arguments(config_json), config_json.get("architecture")
    if any(name in args for name in EVA_ALONE):
        return timm_eva(config_json, tensors)
    require_arguments(args, VIT_VALUES)
    fields = {**read_numerics(args, architecture), **read_last_norm(tensors, read_pooling(args, architecture, tensors))}
    positioned = not args.get("no_embed_class", arguments_of(architecture) is None)
    if args.get("no_embed_class") is True:
        fields["class_token_position"] = False
    elif positioned:
        fields["class_token_position"] = True
    if args.get("qkv_bias") is False:
        fields["qkv_bias"] = "none"
    stated = state(args, config_json, fields, {"reg_tokens": "num_registers", "pre_norm": "pre_norm"})
    return replace(stated, register_positions=positioned and "reg_token" in tensors)


def timm_eva(config_json, tensors):
    """The `Stated` of an EVA-01 or DINOv3, of timm's class Eva."""
    args, architecture = stated_arguments(config_json), config_json.get("architecture")
    rotary = args.get("use_rot_pos_emb", "pos_embed" not in tensors)
    require_arguments(args, DINOV3_VALUES if rotary else EVA_VALUES)
    if rotary and arguments_of(architecture) is not None:
        for name in NOT_EVAS_DEFAULTS:
            require_stated(name in args, f"timm's default of {name}", f"{name}={DINOV3_VALUES[name][0]!r}")
    norm = "layernorm 1e-05" if rotary else "layernorm"
    gated = any(".mlp.fc1_g." in name for name in tensors)
    if gated and not rotary:
        raise Fault(
            "holds gated MLPs beside learned positions, as of EVA-02; that also turns queries and keys by place."
        )
    fields = read_numerics({"norm_layer": norm, **args}, architecture) | ({"activation": "silu"} if gated else {})
    pooling = {"classifier": "token" if args.get("global_pool") == "token" else "gap"}
    fields |= read_last_norm(tensors, pooling)
    return state(args, config_json, fields, {"num_reg_tokens": "num_registers"})


def timm_bit(config_json, tensors):
    args = stated_arguments(config_json)
    require_arguments(args, BIT_VALUES)
    return Stated(shapes={"num_classes": args["num_classes"]} if type(args.get("num_classes")) is int else {})
