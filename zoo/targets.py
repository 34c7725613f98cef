"""The model that a call of `load` requests: its configuration, its labels, and whether it starts from a new head."""

import dataclasses
from collections import Counter

from keras_vit.errors import ConfigError, describe_unknown
from keras_vit.models.building import MODELS
from keras_vit.models.classifier import as_labels
from keras_vit.models.config import ResNetConfig, ViTConfig, drop_inapplicable
from keras_vit.zoo.adapt import representation_width
from keras_vit.zoo.labels import LABEL_SETS, class_names

HEAD_CHOICES = ("new", "keep")
ARGUMENTS = (
    "weights",
    "num_classes",
    "image_size",
    "labels",
    "head",
    "num_heads",
    "preprocessing",
    "position_interpolation",
    "dtype",
)


@dataclasses.dataclass(frozen=True)
class Request:
    """What `load` was asked for of the head and the configuration; None leaves it to the checkpoint.

    Args:
        head: "new", "keep" or None.
        num_classes: of the model.
        labels: names of the classes.
        fields: others of the configuration, by name.
    """

    head: str | None = None
    num_classes: int | None = None
    labels: tuple | None = None
    fields: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def from_arguments(cls, head, num_classes, labels, image_size, fields):
        if head is not None and head not in HEAD_CHOICES:
            raise ConfigError(describe_unknown("head", head, HEAD_CHOICES))
        if labels is not None:
            labels = as_tuple(labels)
            require_distinct(labels)
        num_classes = len(labels) if num_classes is None and labels is not None else num_classes
        fields = fields if image_size is None else {**fields, "image_size": image_size}
        return cls(head=head, num_classes=num_classes, labels=labels, fields=fields)

    @property
    def changes(self):
        """The fields of a configuration to set."""
        return self.fields if self.num_classes is None else {**self.fields, "num_classes": self.num_classes}


@dataclasses.dataclass(frozen=True)
class Target:
    """A model to be built from a checkpoint, or from scratch."""

    config: ViTConfig | ResNetConfig
    labels: tuple | None
    new_head: bool


def as_tuple(labels):
    """Labels as a tuple; a string stays one, for `as_labels` to refuse."""
    if isinstance(labels, str):
        return labels
    try:
        return tuple(labels)
    except TypeError as error:
        raise ConfigError(f"labels must be a list of names. Received: {labels!r}.") from error


def require_distinct(labels):
    """Refuses a name that stands twice; ImageNet's own lists have two synsets of one name, such as crane."""
    if isinstance(labels, str):
        return  # `as_labels` says what is wrong with it
    repeated = [label for label, count in Counter(labels).items() if count > 1]
    if repeated and labels not in map(class_names, LABEL_SETS):
        raise ConfigError(f"labels must give each class a name of its own. Received twice: {repeated[0]!r}.")


def require_fields(fields, kinds=tuple(MODELS)):
    """Refuses a name that is a field of none of these kinds of configuration."""
    known = list(dict.fromkeys(field.name for kind in kinds for field in dataclasses.fields(kind)))
    for name in fields:
        if name not in known:
            raise ConfigError(describe_unknown("argument", name, [*known, *ARGUMENTS]))


def plan_target(config, labels, request):
    """The `Target` of a request for a checkpoint of that configuration and labels.

    Raises:
        ConfigError: for a request that is invalid, and for a head that cannot be kept or made.
    """
    changes = drop_inapplicable(config, request.changes)
    require_fields(changes, (type(config),))
    wanted = dataclasses.replace(config, **changes)
    new_head = takes_new_head(config, wanted, labels, request)
    if new_head and isinstance(config, ViTConfig) and "representation_size" not in request.fields:
        wanted = dataclasses.replace(wanted, representation_size=None)
    if new_head and "probabilities" not in request.fields:
        wanted = dataclasses.replace(wanted, probabilities="softmax")
    kept = None if new_head or wanted.num_classes != config.num_classes else labels
    names = as_labels(kept if request.labels is None else request.labels, wanted)
    return Target(config=wanted, labels=names, new_head=new_head)


def plan_adaptation(config, labels, request):
    """`plan_target`, for tensors of that configuration: these can be resized, but not made into others.

    Raises:
        ConfigError: for a request that is invalid, or for other position embeddings than the checkpoint's.
    """
    target = plan_target(config, labels, request)
    for name in ("position_embedding", "position_embedding_at"):
        own, wanted = getattr(config, name, None), getattr(target.config, name, None)
        if own != wanted:
            raise ConfigError(
                f"{name} is {own!r} in the checkpoint, and its weights cannot become others. Received: {name}="
                f"{wanted!r}. Leave it out, or train from random weights: weights=None."
            )
    return target


def takes_new_head(config, wanted, labels, request):
    """Whether the head starts afresh: as asked, or because the classes differ, in number or in name (section 3.2)."""
    differs = wanted.num_classes != config.num_classes or representation_width(wanted) != representation_width(config)
    if request.head == "keep":
        require_same_head(config, wanted, differs)
        return False
    if request.head == "new" and not wanted.num_classes:
        raise ConfigError("head='new' needs classes to tell apart. Received: none. Pass num_classes= or labels=.")
    renamed = request.labels is not None and request.labels != labels
    return request.head == "new" or bool(wanted.num_classes and (differs or renamed))


def require_same_head(config, wanted, differs):
    """Refuses to keep a head that the checkpoint does not have, or not so."""
    if not config.num_classes:
        raise ConfigError("head='keep' needs a head, and the checkpoint has none. Leave head= out for a new one.")
    if differs:
        raise ConfigError(
            f"head='keep' keeps the checkpoint's head as it is, of {config.num_classes} classes. Received: "
            f"{wanted.num_classes} classes, or another representation_size. Leave head= out for a new head."
        )
