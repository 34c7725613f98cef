"""Which variable of a model each official tensor is; a new model takes the values of a checkpoint strictly."""

import contextlib
import functools

import numpy as np

from keras_vit.models.config import AxialResNetConfig
from keras_vit.zoo.formats.architecture import BLOCKS
from keras_vit.zoo.formats.checkpoint import Fault

DENSE = {"kernel": "kernel", "bias": "bias"}
CONV = {"kernel": "kernel"}
NORM = {"scale": "gamma", "bias": "beta"}
BIT_NORM = {"gamma": "gamma", "beta": "beta"}
# The authors' files have the first alone; the others' names are ours (Appendix D.4).
POSITIONS_1D = {"pos_embedding": "embedding"}
POSITIONS_2D = {"row_embedding": "row_embedding", "column_embedding": "column_embedding"}
POSITIONS_RELATIVE = {"relative_embedding": "embedding"}


def official_variables(model):
    """{official name: (variable, shape in the file)} of a model; axial ones have names of this package's."""
    table = {}
    for prefix, layer, names, *shape in variable_rows(model):
        for name, attribute in names.items():
            variable = getattr(layer, attribute)
            table[f"{prefix}/{name}".lstrip("/")] = (variable, shape[0][name] if shape else tuple(variable.shape))
    return table


def variable_rows(model):
    if isinstance(model.config, AxialResNetConfig):
        return axial_resnet_variables(model)
    return vit_variables(model) if hasattr(model.config, "hidden_size") else resnet_variables(model)


def official_arrays(model):
    """{official name: array}, in the order and the shapes of the authors' files."""
    from keras import ops

    tensors = {}
    for name, (variable, shape) in official_variables(model).items():
        tensors[name] = np.asarray(ops.convert_to_numpy(variable), "float32").reshape(shape)
    return tensors


def vit_variables(model):
    """(prefix, layer, {name in the file: attribute of the layer}[, {name: shape in the file}])."""
    config = model.config
    if config.backbone:
        yield from backbone_variables(model)
    yield "embedding", model.get_layer("embedding"), DENSE
    if config.classifier == "token":
        yield "", model.get_layer("cls"), {"cls": "token"}
    yield from position_variables(model)
    for i in range(config.num_layers):
        yield from block_variables(
            f"Transformer/{BLOCKS[type(config)]}_{i}", model.get_layer(f"encoderblock_{i}"), config
        )
    yield "Transformer/encoder_norm", model.get_layer("encoder_norm"), NORM
    if config.representation_size:
        yield "pre_logits", model.get_layer("pre_logits"), DENSE
    if config.num_classes:
        yield "head", model.get_layer("head"), DENSE


def position_variables(model):
    """Those that are added: posembed_input at the stem, posembed_0 and so on before blocks, or posembed_shared."""
    names = {"1d": POSITIONS_1D, "2d": POSITIONS_2D}.get(model.config.position_embedding, {})
    for layer in dict.fromkeys(model.config.position_layers):
        yield f"Transformer/{layer}", model.get_layer(layer), names


def block_variables(prefix, block, config):
    d, heads = config.hidden_size, config.num_heads
    attention = f"{prefix}/MultiHeadDotProductAttention_1"
    yield f"{prefix}/LayerNorm_0", block.attention_norm, NORM
    for name in ("query", "key", "value"):
        shape = {"kernel": (d, heads, d // heads), "bias": (heads, d // heads)}
        yield f"{attention}/{name}", getattr(block.attention, name), DENSE, shape
    yield f"{attention}/out", block.attention.out, DENSE, {"kernel": (heads, d // heads, d), "bias": (d,)}
    if config.position_embedding == "relative":
        yield attention, block.attention.relative, POSITIONS_RELATIVE
    yield f"{prefix}/LayerNorm_2", block.mlp_norm, NORM
    yield f"{prefix}/MlpBlock_3/Dense_0", block.mlp.hidden, DENSE
    yield f"{prefix}/MlpBlock_3/Dense_1", block.mlp.out, DENSE


def backbone_variables(model):
    yield "conv_root", model.get_layer("conv_root"), CONV
    yield "gn_root", model.get_layer("norm_root"), NORM
    for block, depth in enumerate(model.config.backbone.depths, start=1):
        for u in range(1, depth + 1):
            unit, prefix = model.get_layer(f"block{block}_unit{u}"), f"block{block}/unit{u}"
            for i in "123":
                yield f"{prefix}/conv{i}", getattr(unit, f"conv{i}"), CONV
                yield f"{prefix}/gn{i}", getattr(unit, f"norm{i}"), NORM
            if unit.shortcut is not None:
                yield f"{prefix}/conv_proj", unit.shortcut, CONV
                yield f"{prefix}/gn_proj", unit.shortcut_norm, NORM


def resnet_variables(model):
    yield "resnet/root_block/standardized_conv2d", model.get_layer("root_conv"), CONV
    for block, depth in enumerate(model.config.depths, start=1):
        for u in range(1, depth + 1):
            unit, prefix = model.get_layer(f"block{block}_unit{u:02d}"), f"resnet/block{block}/unit{u:02d}"
            for i, letter in enumerate("abc", start=1):
                yield f"{prefix}/{letter}/group_norm", getattr(unit, f"norm{i}"), BIT_NORM
                yield f"{prefix}/{letter}/standardized_conv2d", getattr(unit, f"conv{i}"), CONV
            if unit.shortcut is not None:
                yield f"{prefix}/a/proj/standardized_conv2d", unit.shortcut, CONV
    yield "resnet/group_norm", model.get_layer("group_norm"), BIT_NORM
    if model.config.num_classes:
        head = model.get_layer("head")
        yield "resnet/head/conv2d", head, DENSE, {"kernel": (1, 1, *head.kernel.shape), "bias": tuple(head.bias.shape)}


def axial_resnet_variables(model):
    yield "conv_root", model.get_layer("conv_root"), CONV
    yield "gn_root", model.get_layer("norm_root"), NORM
    for block, depth in enumerate(model.config.depths, start=1):
        for u in range(1, depth + 1):
            unit, prefix = model.get_layer(f"block{block}_unit{u}"), f"block{block}/unit{u}"
            for i in "13":
                yield f"{prefix}/conv{i}", getattr(unit, f"conv{i}"), CONV
                yield f"{prefix}/gn{i}", getattr(unit, f"norm{i}"), NORM
            for name in ("row_attention", "column_attention"):
                attention = getattr(unit, name)
                yield f"{prefix}/{name}", attention, {"relative_pos_emb": "relative_embedding"}
                yield f"{prefix}/{name}/qkv", attention.qkv, CONV
                yield f"{prefix}/{name}/gn_qkv", attention.qkv_norm, NORM
                yield f"{prefix}/{name}/gn_out", attention.out_norm, NORM
            if unit.shortcut is not None:
                yield f"{prefix}/conv_proj", unit.shortcut, CONV
                yield f"{prefix}/gn_proj", unit.shortcut_norm, NORM
    if model.config.num_classes:
        yield "head", model.get_layer("head"), DENSE


def is_under_strategy():
    import keras

    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def require_fit(model_name, tensors, table, wanted):
    """Refuses tensors that are not in the table {name: (variable, shape)}, or lack one of the names `wanted`."""
    misfits = [name for name in wanted if name in tensors and tensors[name].shape != table[name][1]]
    problems = (
        list_names("missing", [name for name in wanted if name not in tensors]),
        list_names("left over", [name for name in tensors if name not in table]),
        list_names(
            "of the wrong shape", [f"{name} (file {tensors[name].shape}, model {table[name][1]})" for name in misfits]
        ),
    )
    if any(problems):
        raise Fault(f"does not fit the model {model_name}. Tensors {'; '.join(filter(None, problems))}.")


def list_names(kind, names, most=5):
    if not names:
        return ""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{kind}: {', '.join(names[:most])}{more}"


def to_precision(values, dtype):
    """The values in a model's precision, where one that is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return values.astype(dtype, copy=False)


def require_finite(name, values):
    """The values, if all of them are finite numbers."""
    if not np.isfinite(values).all():
        raise Fault(f"has values in {name} that are NaN, infinite or too large for {values.dtype}.")
    return values


class VariableFiller:
    """A scope to build a model in, whose variables take the values of tensors.

    They do so when the scope ends, so that no random values are drawn and no memory is taken twice. A tensor that
    cannot be read is raised then, as a `Fault`.

    >>> with VariableFiller() as filler:  # doctest: +SKIP
    ...     filler.assign(build(config), tensors)
    """

    def __init__(self):
        import keras

        # Keras creates deferred variables outside the scope of a tf.distribute.Strategy.
        self.deferred = not is_under_strategy()
        self.scope = keras.StatelessScope() if self.deferred else contextlib.nullcontext()
        self.failure = None

    def __enter__(self):
        self.scope.__enter__()
        return self

    def __exit__(self, kind, error, traceback):
        self.scope.__exit__(kind, error, traceback)
        if error is None and self.failure is not None:
            raise self.failure

    def assign(self, model, tensors, fresh=()):
        """Gives every variable of the model its tensor; names that start like one of `fresh` keep their initial values.

        Raises:
            Fault: when a tensor is missing, left over or of another shape.
        """
        table = official_variables(model)
        wanted = [name for name in table if not name.startswith(tuple(fresh))]
        require_fit(model.name, tensors, table, wanted)
        for name in wanted:
            variable, _ = table[name]
            initializer = functools.partial(self.first_value, name, tensors[name])
            if self.deferred:
                variable._initializer = initializer  # a deferred variable's, which Keras has no public way to change
            else:
                variable.assign(initializer(variable.shape, variable.dtype))

    def first_value(self, name, tensor, shape, dtype):
        """The tensor's values, or zeros after a failure.

        An error raised in an initializer would leave Keras with half of its variables: the scope raises it at its end.
        """
        if self.failure is None:
            try:
                return require_finite(name, to_precision(tensor.read(), dtype)).reshape(shape)
            except Exception as error:
                self.failure = error
        return np.zeros(shape, dtype)
