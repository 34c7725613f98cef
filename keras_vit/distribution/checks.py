"""What `DistributedModel.compile` refuses or warns of, since several replicas would not train as one device does."""

import warnings

from keras_vit.distribution.optimizer import GlobalUpdate, unwrap
from keras_vit.distribution.replicas import replica_count
from keras_vit.errors import ConfigError


def warn_of_local_clipping(optimizer):
    """Warns of an optimizer of Keras' own that would clip each replica's gradient for itself."""
    inner = unwrap(optimizer)
    clips = [name for name in ("clipnorm", "global_clipnorm", "clipvalue") if getattr(inner, name, None) is not None]
    if clips and replica_count() > 1 and not isinstance(inner, GlobalUpdate):
        name = type(inner).__name__
        warnings.warn(
            f"keras.optimizers.{name} applies {clips[0]} to each replica's gradient before they are summed, so that "
            f"the result depends on the number of replicas. Use keras_vit.training.{name}.",
            stacklevel=3,
        )


def require_in_scope(optimizer, strategy):
    created_in_scope = strategy.extended.variable_created_in_scope
    if not all(created_in_scope(variable.value) for variable in getattr(optimizer, "variables", ())):
        raise ConfigError(
            f"The optimizer was made outside the scope of the model's {type(strategy).__name__}. Make it inside: "
            "with strategy.scope(): model.compile(optimizer=...)."
        )


def require_no_jit(jit_compile):
    if jit_compile is True and replica_count() > 1:
        raise ConfigError(
            f"jit_compile=True cannot train on {replica_count()} replicas: XLA would take the step of all for one "
            "device's. Leave it out (TPUStrategy compiles by itself), or train on one device."
        )
