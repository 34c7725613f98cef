"""LoRA (arXiv 2106.09685) in Keras' layers: two thin factors beside a kernel, and the kernel with what they add to it.

Keras' own merging, when it saves, rounds the kernels of a layer that computes in bfloat16. Only `add_factors` imports
Keras.
"""

import contextlib


def add_factors(dense, rank, seed):
    """Keras' LoRA on a dense layer, with variables that are named as its others are."""
    import keras

    with contextlib.ExitStack() as scopes:
        for name in dense.path.split("/")[:-1]:
            scopes.enter_context(keras.name_scope(name))
        dense.enable_lora(rank, a_initializer=keras.initializers.HeUniform(seed=seed))


def has_lora(layer):
    return bool(getattr(layer, "lora_enabled", False))


def factors_of(model):
    """The factors of all layers of a model that have LoRA."""
    layers = filter(has_lora, model._flatten_layers())  # the layers within layers too
    return [factor for layer in layers for factor in (layer.lora_kernel_a, layer.lora_kernel_b)]


def weights_without_lora(model, read=lambda weight: weight.numpy()):
    """[(weight, its array)] of a model, the products of LoRA's factors added to the kernels, and no factors.

    Args:
        read: function of a weight to its array, such as one to its average.
    """
    sums, factors = {}, set(map(id, factors_of(model)))
    # The layers within layers; `model.layers` has the outermost alone.
    for layer in filter(has_lora, model._flatten_layers()):
        a, b = layer.lora_kernel_a, layer.lora_kernel_b
        kernel = next(weight for weight in layer.weights if weight.name == "kernel")  # layer.kernel is the sum already
        sums[id(kernel)] = read(kernel) + (layer.lora_alpha / layer.lora_rank) * (read(a) @ read(b))
    kept = [weight for weight in model.weights if id(weight) not in factors]
    return [(weight, sums[id(weight)] if id(weight) in sums else read(weight)) for weight in kept]


def without_lora(model):
    """A model that computes the same without LoRA's factors, in plain kernels; the model itself where it has none."""
    if not any(map(has_lora, model._flatten_layers())):
        return model
    twin = type(model).from_config(drop_ranks(model.get_config()))
    twin.set_weights([array for _, array in weights_without_lora(model)])
    return twin


def drop_ranks(config):
    """A serialized model whose layers are made without LoRA."""
    if isinstance(config, dict):
        return {key: drop_ranks(value) for key, value in config.items() if key not in ("lora_rank", "lora_alpha")}
    if isinstance(config, list | tuple):
        return type(config)(map(drop_ranks, config))
    return config
