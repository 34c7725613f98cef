"""LoRA (arXiv 2106.09685) in Keras' layers: adds two thin factors to a kernel, and merges them into it.

When Keras saves a layer that computes in bfloat16, its own merging rounds the kernel. Keras is imported when needed.
"""

import contextlib


def add_factors(dense, rank, seed):
    """Enables Keras' LoRA on a dense layer, and names its variables like the layer's others."""
    import keras

    with contextlib.ExitStack() as scopes:
        for name in dense.path.split("/")[:-1]:
            scopes.enter_context(keras.name_scope(name))
        dense.enable_lora(rank, a_initializer=keras.initializers.HeUniform(seed=seed))


def layers_with_lora(model):
    """Layers within layers, too; `model.layers` has only the outermost."""
    return [layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False)]


def factors_of(model):
    """The factors of all layers of a model that have LoRA."""
    return [factor for layer in layers_with_lora(model) for factor in (layer.lora_kernel_a, layer.lora_kernel_b)]


def weights_without_lora(model):
    """[(weight, its array)] of a model without LoRA's factors; their products are added to the kernels."""
    sums, factors = {}, set(map(id, factors_of(model)))
    for layer in layers_with_lora(model):
        a, b = layer.lora_kernel_a, layer.lora_kernel_b
        kernel = next(weight for weight in layer.weights if weight.name == "kernel")  # layer.kernel has the sum
        sums[id(kernel)] = kernel.numpy() + (layer.lora_alpha / layer.lora_rank) * (a.numpy() @ b.numpy())
    kept = [weight for weight in model.weights if id(weight) not in factors]
    return [(weight, sums[id(weight)] if id(weight) in sums else weight.numpy()) for weight in kept]


def without_lora(model):
    """A model that computes the same by plain kernels, without LoRA's factors; the model itself if it has none."""
    if not layers_with_lora(model):
        return model
    return rebuild(model, drop_ranks(model.get_config()))


def rebuild(model, config):
    """A model of a configuration with the weights of another, LoRA's factors added to its kernels."""
    import keras

    arrays = [array for _, array in weights_without_lora(model)]
    if keras.backend.backend() != "jax":
        twin = type(model).from_config(config)
        twin.set_weights(arrays)
        return twin
    with keras.StatelessScope():  # draws no random values, since JAX would compile that for each shape
        twin = type(model).from_config(config)
        for weight, array in zip(twin.weights, arrays, strict=True):
            weight._initializer = lambda shape, dtype, array=array: array.astype(dtype)
    return twin


def drop_ranks(config):
    """Removes LoRA's ranks from a serialized model, so that its layers are made without LoRA."""
    if isinstance(config, dict):
        return {key: drop_ranks(value) for key, value in config.items() if key not in ("lora_rank", "lora_alpha")}
    if isinstance(config, list | tuple):
        return type(config)(map(drop_ranks, config))
    return config
