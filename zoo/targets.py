"""The model that a call of `load` asks for: its configuration, its labels, and whether it starts from a new head."""

import dataclasses

from keras_vit.errors import ConfigError, describe_unknown
from keras_vit.models.classifier import as_labels
from keras_vit.models.config import ResNetConfig, ViTConfig, drop_inapplicable
from keras_vit.zoo.adapt import representation

CHOICES = ("new", "keep")
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
class Asked:
    """What `load` was asked for of the head and the configuration; None leaves it to the checkpoint."""

    head: str | None = None
    num_classes: int | None = None
    labels: tuple | None = None
    fields: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, head, num_classes, labels, image_size, fields):
        if head is not None and head not in CHOICES:
            raise ConfigError(describe_unknown("head", head, CHOICES))
        if labels is not None:
            labels = listed(labels)
        num_classes = len(labels) if num_classes is None and labels is not None else num_classes
        fields = fields if image_size is None else {**fields, "image_size": image_size}
        return cls(head, num_classes, labels, fields)

    @property
    def changes(self):
        """The fields of a configuration to set."""
        return self.fields if self.num_classes is None else {**self.fields, "num_classes": self.num_classes}


def listed(labels):
    """Labels as a tuple; a string stays one, for `as_labels` to refuse."""
    if isinstance(labels, str):
        return labels
    try:
        return tuple(labels)
    except TypeError as error:
        raise ConfigError(f"labels must be a list of names. Received: {labels!r}.") from error


def require_fields(fields, kinds=(ViTConfig, ResNetConfig)):
    """Refuses a name that is a field of none of these kinds of configuration."""
    known = list(dict.fromkeys(field.name for kind in kinds for field in dataclasses.fields(kind)))
    for name in fields:
        if name not in known:
            raise ConfigError(describe_unknown("argument", name, [*known, *ARGUMENTS]))


def target(config, labels, asked):
    """(configuration, labels, whether the head is new) of the model asked for, of a checkpoint's own two.

    Raises:
        ConfigError: for what no model can have, and for a head that cannot be kept or made.
    """
    changes = drop_inapplicable(config, asked.changes)
    require_fields(changes, (type(config),))
    wanted = dataclasses.replace(config, **changes)
    new = takes_new_head(config, wanted, labels, asked)
    if new and isinstance(config, ViTConfig) and "representation_size" not in asked.fields:
        wanted = dataclasses.replace(wanted, representation_size=None)
    kept = None if new or wanted.num_classes != config.num_classes else labels
    return wanted, as_labels(kept if asked.labels is None else asked.labels, wanted), new


def takes_new_head(config, wanted, labels, asked):
    """Whether the head starts afresh: as asked, or because the classes differ, in number or in name (section 3.2)."""
    differs = wanted.num_classes != config.num_classes or representation(wanted) != representation(config)
    if asked.head == "keep":
        require_same_head(config, wanted, differs)
        return False
    if asked.head == "new" and not wanted.num_classes:
        raise ConfigError("head='new' needs classes to tell apart. Received: none. Pass num_classes= or labels=.")
    renamed = asked.labels is not None and asked.labels != labels
    return asked.head == "new" or bool(wanted.num_classes and (differs or renamed))


def require_same_head(config, wanted, differs):
    if not config.num_classes:
        raise ConfigError("head='keep' needs a head, and the checkpoint has none. Leave head= out for a new one.")
    if differs:
        raise ConfigError(
            f"head='keep' keeps the checkpoint's head as it is, of {config.num_classes} classes. Received: "
            f"{wanted.num_classes} classes, or another representation_size. Leave head= out for a new head."
        )
