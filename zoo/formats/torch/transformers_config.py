"""transformers' config.json: what it states of a ViT, hybrid or BiT, defaults of its classes included."""

from keras_vit.zoo.formats.torch.stated import Stated, as_size, require_stated

GELU_BY_TANH = {
    "gelu": False,
    "gelu_python": False,
    "gelu_new": True,
    "gelu_fast": True,
    "gelu_accurate": True,
    "gelu_pytorch_tanh": True,
    "gelu_python_tanh": True,
}
VIT_TYPES = ("vit", "vit_msn", "vit-hybrid")
BIT_TYPES = ("bit",)
SHAPES = {"hidden_size": "hidden_size", "num_hidden_layers": "num_layers", "intermediate_size": "mlp_dim"}
# Fields that change a ResNet's function and not its tensors, with the values of ours; the first is the default.
BIT_VALUES = {
    "layer_type": ("preactivation",),
    "global_padding": (None,),
    "embedding_dynamic_padding": (False,),
    "hidden_act": ("relu",),
    "num_groups": (32,),
    "output_stride": (32,),
}
HYBRID_VALUES = {
    **BIT_VALUES,
    "layer_type": ("bottleneck",),
    "global_padding": ("same", "SAME"),
    "embedding_dynamic_padding": (True,),
}


def stated_vit(config_json, tensors):
    """The `Stated` of a ViT or hybrid; every other field of its configuration leaves the function alone.

    Raises:
        Fault: for fields that make another function of the same tensors.
    """
    require_type(config_json, VIT_TYPES)
    fields = {}
    activation = config_json.get("hidden_act", "gelu")
    known = isinstance(activation, str) and activation in GELU_BY_TANH
    require_stated(known, f"the activation {activation!r}", ", ".join(GELU_BY_TANH))
    fields["gelu_approximate"] = GELU_BY_TANH[activation]
    if isinstance(config_json.get("layer_norm_eps"), float):
        fields["layer_norm_epsilon"] = config_json["layer_norm_eps"]
    if "pooler.dense.weight" in tensors:
        require_values(config_json, {"pooler_act": ("tanh",)})
    if isinstance(config_json.get("backbone_config"), dict):
        require_values(config_json["backbone_config"], HYBRID_VALUES)
    heads = config_json.get("num_attention_heads", 12 if config_json.get("model_type") in VIT_TYPES else None)
    shapes = {ours: config_json[theirs] for theirs, ours in SHAPES.items() if type(config_json.get(theirs)) is int}
    return Stated(
        num_heads=heads if type(heads) is int and heads > 0 else None,
        image_size=as_size(config_json.get("image_size")),
        fields=fields,
        shapes=shapes,
    )


def stated_bit(config_json, tensors):
    """The `Stated` of a ResNet; raises as `stated_vit` does."""
    require_type(config_json, BIT_TYPES)
    require_values(config_json, BIT_VALUES)
    return Stated()


def require_type(config_json, types):
    kind = config_json.get("model_type", types[0])
    require_stated(kind in types, f"the model_type {kind!r}", ", ".join(types))


def require_values(config_json, values):
    for name, known in values.items():
        value = config_json.get(name, known[0])
        require_stated(value in known, f"{name}={value!r}", f"{name}={known[0]!r}")
