"""The models' base class: a functional keras.Model that knows its configuration, preprocessing and class names."""

import dataclasses
import functools
import inspect
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import keras

from keras_vit import _registration
from keras_vit.distribution import DistributedModel
from keras_vit.errors import ConfigError, PreprocessingError, require_backend
from keras_vit.images.augmenting import finish, is_unfinished
from keras_vit.layers.base import wide_type
from keras_vit.layers.pooling import PatchesToPixels
from keras_vit.models.config import ConstructorFields, change, describe_fields, parameters_of
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing, preprocessing_of
from keras_vit.models.vectors import forget_traces, sub_model

# Keras changes the bases of the class of the first model: two threads at once would make a cycle of them.
BUILDING = threading.Lock()

PROBABILITY_LOSSES = ("binary_crossentropy", "categorical_crossentropy", "sparse_categorical_crossentropy")


def image_input(height, width, num_channels, dtype):
    """The symbolic images (n, height, width, num_channels) of a model with the given dtype policy."""
    return keras.Input((height, width, num_channels), dtype=wide_type(dtype.compute_dtype), name="images")


def linear_head(x, width, dtype, name="head", use_bias=True):
    """A linear layer (..., d) to (..., width), zero at first; at least float32, whatever the policy."""
    dtype = wide_type(dtype.compute_dtype)
    return keras.layers.Dense(width, use_bias=use_bias, kernel_initializer="zeros", dtype=dtype, name=name)(x)


def classify_map(x, images, config, dtype):
    """The logits of a feature map (n, h', w', c): for its mean, or for each pixel with classifier="patches"."""
    if config.classifier != "patches":
        x = keras.layers.GlobalAveragePooling2D("channels_last", dtype=dtype, name="pool")(x)
    return classify(x, images, config, dtype)


def classify(x, images, config, dtype, use_bias=True):
    """The logits of features (..., d), if there are classes; those of patches are resized to the images' size."""
    if not config.num_classes:
        return x
    x = linear_head(x, config.num_classes, dtype, use_bias=use_bias)
    if config.classifier != "patches":
        return x
    step = getattr(config, "pixels_per_token", None)
    return PatchesToPixels(step, dtype=wide_type(dtype.compute_dtype), name="pixels")(x, images=images)


def inner_parts(part):
    """{name: layer or weight} of the layers and weights directly in a layer."""
    if not isinstance(part, keras.layers.Layer):
        return {}
    model = isinstance(part, keras.Model)
    layers = part.layers if model else part._flatten_layers(include_self=False, recursive=False)
    layers = {layer.name: layer for layer in layers}
    held = {id(weight) for layer in layers.values() for weight in layer.weights}
    return layers | {weight.name: weight for weight in part.weights if id(weight) not in held}


def find_differing(part, path=""):
    """(path, trainable) of inner layers and weights whose `trainable` differs from their parent's, outermost first."""
    for name, inner in inner_parts(part).items():
        if inner.trainable != part.trainable:
            yield path + name, inner.trainable
        yield from find_differing(inner, f"{path}{name}/")


def get_trainable(model):
    """The argument by which `set_trainable` makes another model of that architecture train the same parts."""
    differing = dict(find_differing(model))
    return {"": model.trainable, **differing} if differing else model.trainable


def set_trainable(model, trainable):
    """Sets `trainable` of a model, or of its parts: a bool, or {path: bool}, outer parts first."""
    for path, value in (trainable if isinstance(trainable, Mapping) else {"": trainable}).items():
        part = model
        for name in filter(None, path.split("/")):
            part = inner_parts(part).get(name)
            if part is None:
                raise ConfigError(f"trainable must hold paths of layers and weights in the model. Received: {path!r}.")
        part.trainable = value


def as_preprocessing(preprocessing, config):
    if preprocessing is None:
        half = (0.5,) * config.num_channels
        return Preprocessing(config.own_size or (224, 224), mean=half, std=half)
    if isinstance(preprocessing, dict):
        preprocessing = preprocessing_of(preprocessing)
    if isinstance(preprocessing, UnknownPreprocessing):
        return preprocessing
    if not isinstance(preprocessing, Preprocessing) or len(preprocessing.mean) != config.num_channels:
        raise ConfigError(
            f"preprocessing must be a Preprocessing of {config.num_channels} channels, its fields, or None. "
            f"Received: {preprocessing!r}."
        )
    size = config.image_size
    return dataclasses.replace(preprocessing, image_size=size) if size and None not in size else preprocessing


def as_labels(labels, config):
    if labels is None:
        return None
    if isinstance(labels, str | Mapping):
        kind = "string" if isinstance(labels, str) else "mapping"
        raise ConfigError(f"labels must be a list of names. Received: the {kind} {labels!r}.")
    if len(labels) != config.num_classes:
        raise ConfigError(
            f"labels must name each class once. Received: {len(labels)} labels, {config.num_classes} classes."
        )
    return tuple(map(str, labels))


def find_quantization(model: keras.Model) -> str | None:
    """The mode in which `model.quantize` has quantized layers, or None."""
    # Keras has no public way to layers inside layers.
    return next(filter(None, (getattr(layer, "quantization_mode", None) for layer in model._flatten_layers())), None)


def first_leaf(batch):
    """The images of a batch: its first leaf."""
    return (keras.tree.flatten(batch) or [None])[0]


def watch_batches(batches, check):
    for i, batch in enumerate(batches):
        if not i:
            check(first_leaf(batch))
        yield batch


def watch(data, check, several):
    """Checks the first images, at once or as the first batch is read; returns the data to read."""
    if inspect.isgenerator(data):
        return watch_batches(data, check)
    if hasattr(data, "element_spec"):
        if several or not hasattr(data, "map"):
            return data
        from keras_vit.distribution.tf_batches import check_first  # here, since it imports TensorFlow

        return check_first(data, check)
    if isinstance(data, keras.utils.PyDataset):
        check(first_leaf(data[0]))
    elif hasattr(first_leaf(data), "shape"):
        check(first_leaf(data)[:32])
    return data


def warn_of_probabilities(loss):
    """Warns of a loss of Keras that takes probabilities: a model would hardly learn from it, since it gives logits."""
    name = loss if isinstance(loss, str) else type(loss).__name__
    if name in PROBABILITY_LOSSES or getattr(loss, "from_logits", True) is False:
        warnings.warn(
            f"The loss {name} takes probabilities, but this model gives logits, so that it would hardly learn. Compile "
            "it with logits in mind, such as loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True).",
            stacklevel=3,
        )


def checks_first_batch(method):
    """Decorates `fit`, `evaluate` or `predict` to refuse images that are not preprocessed, by the first of them.

    For arrays these are the first 32. The first batch of a generator or `tf.data.Dataset` is checked as it is read; a
    `tf.data.Dataset` is not checked on several replicas. `fit` also warns of a loss that takes probabilities.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(self, *args, **kwargs):
        if method.__name__ == "fit":
            warn_of_probabilities(self.loss)
        checked_before = kwargs.get("_use_cached_eval_dataset")  # by `fit`, which evaluates on them
        if checked_before or isinstance(self._preprocessing, UnknownPreprocessing):
            return method(self, *args, **kwargs)
        given, errors = signature.bind(self, *args, **kwargs), []

        def check(images):
            try:
                self.preprocessing.require_normalized(keras.ops.convert_to_numpy(images))
            except Exception as error:
                errors.append(error)  # tf.data hides it in an error of its own
                raise
            return True

        several = getattr(getattr(self, "distribute_strategy", None), "num_replicas_in_sync", 1) > 1
        for name in given.arguments.keys() & {"x", "validation_data"}:
            given.arguments[name] = watch(given.arguments[name], check, several)
        try:
            return method(*given.args, **given.kwargs)
        except Exception:
            if errors:
                raise errors[0] from None
            raise

    return checked


class SignatureOfClass:
    """The signature of a class, not of its instances: a model is called with images."""

    def __init__(self, signature: inspect.Signature):
        self.signature = signature

    def __get__(self, instance, owner):
        if instance is not None:
            raise AttributeError("__signature__")
        return self.signature


class Classifier(DistributedModel):
    """A functional model rebuilt from its arguments alone, so that `.keras` files load with safe_mode on.

    A subclass sets `config_class`, and its `make_graph` makes the graph of a configuration. The constructor takes a
    configuration or its fields; FIELDS in the subclass's docstring is replaced by their explanations.

    Args:
        configuration: a configuration, to be changed by `fields`; or the first fields themselves, in their order.
        preprocessing: how images become inputs: a `Preprocessing`, its fields as a dict, or None for the paper's
            (resize to image_size, pixels to [-1, 1]). With an `UnknownPreprocessing`, reading the attribute raises.
        labels: names of the classes in the order of the logits, or None.
        dtype: policy of the layers, or its name, such as "mixed_bfloat16"; None for Keras' global one.
        name: the model's name.
        trainable: False freezes all layers; {path: bool} sets `trainable` of layers, inner layers and weights, in the
            given order, such as {"embedding": False} or {"": False, "head": True}, where "" is the model.
        fields: fields of the configuration, by name.

    Raises:
        ConfigError: if an argument is invalid or contradicts another, if the number of labels differs from that of
            classes, or if `trainable` has an unknown path.
    """

    config_class: type

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        own = [p for p in inspect.signature(Classifier.__init__).parameters.values() if p.kind is p.KEYWORD_ONLY]
        cls.__signature__ = SignatureOfClass(inspect.Signature([*parameters_of(cls.config_class), *own]))
        cls.__doc__ = (cls.__doc__ or "").replace("        FIELDS", describe_fields(cls.config_class))

    def __init__(
        self,
        *configuration: Any,
        preprocessing: Preprocessing | UnknownPreprocessing | dict | None = None,
        labels: Sequence[str] | None = None,
        dtype: str | keras.DTypePolicy | None = None,
        name: str | None = None,
        trainable: bool | Mapping[str, bool] = True,
        **fields: Unpack[ConstructorFields],
    ):
        config = self.configure(configuration, fields)
        dtype = keras.dtype_policies.get(dtype)
        height, width = config.image_size or (None, None)
        images = image_input(height, width, config.num_channels, dtype)
        outputs = self.make_graph(images, config, dtype)
        with BUILDING:
            super().__init__(images, outputs, name=name)
        self.dtype_policy = dtype
        self.config: Any = config  # Any, so that the fields of each family need no cast
        self.preprocessing = preprocessing
        self.labels = labels
        set_trainable(self, trainable)

    @classmethod
    def configure(cls, configuration, fields):
        """Makes the configuration from a constructor's arguments."""
        if len(configuration) == 1 and isinstance(configuration[0], cls.config_class):
            return change(configuration[0], fields)
        try:
            fields = cls.__signature__.bind(*configuration, **fields).arguments
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}.") from None
        return cls.config_class(**fields)

    @property
    def preprocessing(self) -> Preprocessing:
        """The preprocessing from uint8 images to inputs.

        Raises:
            PreprocessingError: if the files of the weights do not state it.
        """
        if isinstance(self._preprocessing, UnknownPreprocessing):
            raise PreprocessingError(
                f"{self._preprocessing.unknown} Set model.preprocessing, or pass preprocessing= to keras_vit.zoo.load: "
                "a keras_vit.models.Preprocessing with the mean, std, crop and interpolation of its training."
            )
        return self._preprocessing

    @preprocessing.setter
    def preprocessing(self, preprocessing):
        self._preprocessing = as_preprocessing(preprocessing, self.config)
        forget_traces(self)  # they normalize uint8 images as before

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes in the order of the logits, or None."""
        return self._labels

    @labels.setter
    def labels(self, labels):
        self._labels = as_labels(labels, self.config)

    @property
    def gives_vectors(self) -> bool:
        """Whether the output is a vector, or one for each patch: without a head, or by a projection, such as CLIP's."""
        config = self.config
        projects = not getattr(config, "head_bias", True) and not config.unit_vectors and config.classifier != "patches"
        return not config.num_classes or (projects and self.labels is None)

    @property
    def remat(self) -> bool:
        """Whether training keeps only the inputs of blocks, and recomputes their inner values for the gradient.

        This saves memory and takes about a third more time; the gradient is the same to rounding. Set it before
        `compile`. It is no part of the model's configuration and is not saved.
        """
        return any(layer.remat for layer in self.layers if hasattr(layer, "remat"))

    @remat.setter
    def remat(self, remat):
        if remat:
            require_backend("remat=True", "tensorflow")
        for layer in self.layers:
            if hasattr(layer, "remat"):
                layer.remat = bool(remat)

    def features(self, images: Any) -> Any:
        """Images (n, h, w, channels) to what the head reads: features (n, width), or those of each patch."""
        return sub_model(self, "features")(*self._standardize_inputs(images), training=False)

    if not TYPE_CHECKING:  # type checkers read the arguments of Keras' methods
        fit = checks_first_batch(DistributedModel.fit)
        evaluate = checks_first_batch(DistributedModel.evaluate)
        predict = checks_first_batch(DistributedModel.predict)

    def _standardize_inputs(self, inputs):
        """The images as the graph takes them: uint8 images are normalized, however the model is called.

        A dict may hold a batch whose augmentation is left to the model (`data.Examples.train`).
        """
        if isinstance(inputs, dict) and is_unfinished(inputs):
            inputs = self.preprocessing.normalize(finish(inputs))

        def normalize(x):
            raw = hasattr(x, "dtype") and keras.backend.standardize_dtype(x.dtype) == "uint8"
            return self.preprocessing.normalize(x) if raw else x

        return super()._standardize_inputs(keras.tree.map_structure(normalize, inputs))

    def get_config(self):
        if mode := find_quantization(self):
            raise ConfigError(
                f"{self.name} was quantized by Keras ({mode}), which its configuration cannot say: save it before "
                "model.quantize, or keep its weights alone with model.save_weights."
            )
        return {
            **dataclasses.asdict(self.config),
            "preprocessing": dataclasses.asdict(self._preprocessing),
            "labels": self.labels,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "name": self.name,
            "trainable": get_trainable(self),
        }

    def save(self, *arguments: Any, **options: Any):
        """Saves as `keras.Model.save` does, which would open the file before it asks for the configuration."""
        self.get_config()
        path = str(arguments[0] if arguments else options.get("filepath"))
        if path.endswith(".h5"):
            raise ConfigError(
                f"Keras could not load this model from its old format. Received: {path!r}. Save it as a .keras file, "
                "or its weights with model.save_weights('model.weights.h5')."
            )
        super().save(*arguments, **options)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


# Keras' clone_model takes a constructor of *arguments and **fields for one of inputs and outputs.
STATED = inspect.signature(Classifier.__init__)
KEPT = [p for p in STATED.parameters.values() if p.kind is not p.VAR_POSITIONAL]
Classifier.__init__.__signature__ = STATED.replace(parameters=KEPT)  # type: ignore[attr-defined]

_registration.register()
