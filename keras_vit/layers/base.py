"""A layer that is configured by its constructor's arguments, its fast paths, and the dtype of norms and sums."""

import functools
import inspect
from typing import Any

import keras


def wide_type(dtype):
    """float32, or float64 for float64; Keras promotes to float64 on TensorFlow alone."""
    return keras.backend.result_type(dtype, "float32")


def widen(x):
    return keras.ops.cast(x, wide_type(x.dtype))


def by_token(function, x):
    """Applies function to every token of (n, l, d): to (n * l, d), in one plain matrix product, where l is known."""
    if x.shape[1] is None:
        return function(x)
    y = function(keras.ops.reshape(x, (-1, x.shape[2])))
    return keras.ops.reshape(y, (-1, x.shape[1], y.shape[-1]))


def fast_path(function):
    """Makes function(call, layer, *args, **kwargs) a decorator of a layer's method `call`; it may run `call` itself."""

    def decorate(call):
        @functools.wraps(call)  # Keras reads its signature
        def decorated(self, *args, **kwargs):
            return function(call, self, *args, **kwargs)

        return decorated

    return functools.wraps(function)(decorate)


class ConfiguredLayer(keras.layers.Layer):
    """A layer that keeps each argument of its constructor as the attribute of that name.

    So `get_config` is written here once; a subclass overrides it only if an argument must be serialized. A subclass
    names its own arguments before **kwargs, which hold Keras' (name, dtype, trainable) and those of the layer it
    extends. The output has the input's shape unless a subclass overrides `compute_output_shape`.
    """

    @classmethod
    def argument_names(cls) -> list[str]:
        """The names of the constructor's arguments, without Keras' own."""
        extended = [c for c in cls.__mro__ if issubclass(c, ConfiguredLayer) and "__init__" in vars(c)]
        parameters = [p for c in extended for p in inspect.signature(c.__init__).parameters.values()]
        return [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name != "self"]

    @classmethod
    def arguments_in(cls, source: Any) -> dict[str, Any]:
        """The constructor's arguments that `source`, a configuration or a layer, has as attributes."""
        return {name: getattr(source, name) for name in cls.argument_names() if hasattr(source, name)}

    def get_config(self):
        return {**super().get_config(), **{name: getattr(self, name) for name in self.argument_names()}}

    def compute_output_shape(self, input_shape):
        return input_shape

    def _post_build(self):
        super()._post_build()
        for layer in self._flatten_layers(include_self=False, recursive=False) if not self.trainable else ():
            layer.trainable = False  # Keras freezes the layer's own weights alone


def takes_arguments_of(*parts):
    """Decorates the constructor of a layer made of `parts`: it also takes and keeps their arguments.

    So an option is declared only in the layer that uses it, and not again in every layer above.
    """
    of_parts = {p.name: p for part in parts for p in inspect.signature(part.__init__).parameters.values()}

    def decorate(init):
        *named, kwargs = inspect.signature(init).parameters.values()
        taken = of_parts.keys() - {p.name for p in named} - {"self", "kwargs"}
        more = [p.replace(kind=p.KEYWORD_ONLY) for name, p in of_parts.items() if name in taken]

        def construct(self, *args, **kwargs):
            given = {p.name: kwargs.pop(p.name, p.default) for p in more}
            init(self, *args, **kwargs)
            for name, value in given.items():
                setattr(self, name, value)

        decorated: Any = functools.wraps(init)(construct)
        decorated.__signature__ = inspect.Signature([*named, *more, kwargs])
        return decorated

    return decorate
