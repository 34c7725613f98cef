"""The model card of weights that ship, of the parts that export's cards have."""

import textwrap

from keras_vit.export.card import describe_classes, list_model_facts, write_front_matter
from keras_vit.export.description import describe_model


def format_card(row, model):
    """The model card of a row with a record, as export writes cards."""
    record = row.record
    about = describe_model(model, model, [tensor.shape for tensor in model.inputs])
    about |= {
        "name": row.name,
        "architecture": row.variant,
        "artefacts": [],
        "licence": row.licence,
        "versions": record.versions,
        **row.history,
    }
    training = [
        textwrap.indent(record.command, "    "),
        f"- Seed: {record.seed}",
        f"- Time: {record.minutes} minutes on {record.machine}",
        f"- Data: {record.data}",
        f"- Rounded to float16: {row.accuracy:.2f} % on the test set, {record.float32_accuracy:.2f} % before",
        f"- On the sample tests/samples/{record.sample}: {record.sample_right} of {record.sample_images}",
        f"- File: {row.file}, {row.bytes:,} bytes, SHA-256 {row.sha256}",
    ]
    parts = [
        write_front_matter(about),
        f"# {row.name}",
        list_model_facts(about),
        describe_classes(about["labels"], about["probabilities"]),
        "## Training",
        "\n\n".join([training[0], "\n".join(training[1:])]),
        f"## Use\n\n    keras-vit predict photo.png --model {row.name}    # no download: it comes with the package",
    ]
    return "\n\n".join(parts) + "\n"
