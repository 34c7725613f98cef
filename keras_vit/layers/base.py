"""A layer whose configuration is what it was made with."""

import inspect

import keras


class ConfiguredLayer(keras.layers.Layer):
    """A layer that keeps each argument of its constructor as the attribute of that name.

    So `get_config` stands here once. A subclass names its arguments before **kwargs, which are Keras' (name, dtype,
    trainable), and overrides it only where an argument is to be serialized.
    """

    def get_config(self):
        parameters = inspect.signature(type(self).__init__).parameters.values()
        # Where a subclass has no constructor, these are Keras' own, all of them keyword-only.
        names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
