"""transformers' config.json: what it states of a ViT, hybrid or BiT, defaults of its classes included."""

from keras_vit.zoo.formats.torch.stated import Stated, require_stated, sides

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


def stated_vit(path, said, tensors):
    """The `Stated` of a ViT or hybrid; every other field of its configuration leaves the function alone.

    Raises:
        CheckpointError: for fields that make another function of the same tensors.
    """
    require_type(path, said, VIT_TYPES)
    fields = {}
    activation = said.get("hidden_act", "gelu")
    known = isinstance(activation, str) and activation in GELU_BY_TANH
    require_stated(path, known, f"the activation {activation!r}", ", ".join(GELU_BY_TANH))
    fields["gelu_approximate"] = GELU_BY_TANH[activation]
    if isinstance(said.get("layer_norm_eps"), float):
        fields["layer_norm_epsilon"] = said["layer_norm_eps"]
    if "pooler.dense.weight" in tensors:
        require_values(path, said, {"pooler_act": ("tanh",)})
    if isinstance(said.get("backbone_config"), dict):
        require_values(path, said["backbone_config"], HYBRID_VALUES)
    heads = said.get("num_attention_heads", 12 if said.get("model_type") in VIT_TYPES else None)
    shapes = {ours: said[theirs] for theirs, ours in SHAPES.items() if type(said.get(theirs)) is int}
    return Stated(heads if type(heads) is int and heads > 0 else None, sides(said.get("image_size")), fields, shapes)


def stated_bit(path, said, tensors):
    """The `Stated` of a ResNet; raises as `stated_vit` does."""
    require_type(path, said, BIT_TYPES)
    require_values(path, said, BIT_VALUES)
    return Stated()


def require_type(path, said, types):
    kind = said.get("model_type", types[0])
    require_stated(path, kind in types, f"the model_type {kind!r}", ", ".join(types))


def require_values(path, said, values):
    for name, known in values.items():
        value = said.get(name, known[0])
        require_stated(path, value in known, f"{name}={value!r}", f"{name}={known[0]!r}")
