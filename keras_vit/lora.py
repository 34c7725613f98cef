"""LoRA (arXiv 2106.09685) in Keras' layers: adds two thin factors to a kernel, and merges them into it.

When Keras saves a layer that computes in bfloat16, its own merging rounds the kernel. Only `add_factors` imports Keras.
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
    twin = type(model).from_config(drop_ranks(model.get_config()))
    twin.set_weights([array for _, array in weights_without_lora(model)])
    return twin


def drop_ranks(config):
    """Removes LoRA's ranks from a serialized model, so that its layers are made without LoRA."""
    if isinstance(config, dict):
        return {key: drop_ranks(value) for key, value in config.items() if key not in ("lora_rank", "lora_alpha")}
    if isinstance(config, list | tuple):
        return type(config)(map(drop_ranks, config))
    return config
