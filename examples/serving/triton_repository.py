"""Lays a bundle's ONNX file out as a model repository of NVIDIA Triton:

    keras-vit export runs/1 --to onnx --out dist
    python examples/serving/triton_repository.py dist repository --name vit
    docker run --rm -p 8000:8000 -v "$PWD/repository:/models" nvcr.io/nvidia/tritonserver:26.01-py3 \
        tritonserver --model-repository=/models

Triton reads repository/vit/config.pbtxt and repository/vit/1/model.onnx, and names the classes by labels.txt.
Images are prepared as predict.py of the bundle does it.
"""

import argparse
import json
import shutil
from pathlib import Path

TYPES = {"float32": "TYPE_FP32", "float16": "TYPE_FP16", "uint8": "TYPE_UINT8"}
CONFIG = """\
name: {name}
platform: "onnxruntime_onnx"
max_batch_size: {batch}
input [ {{ name: {input}, data_type: {input_type}, dims: {input_dims} }} ]
output [ {{ name: {output}, data_type: {output_type}, dims: {output_dims}{labels} }} ]
dynamic_batching {{ }}
"""


def dims(shape):
    """The lengths after the batch; -1 for a free one."""
    return [-1 if length is None else length for length in shape[1:]]


def tensor_names(path):
    """(name of the input, name of the output) of an ONNX file of one of each, for any batch."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    if len(graph.input) != 1 or len(graph.output) != 1 or graph.input[0].type.tensor_type.shape.dim[0].dim_value:
        raise SystemExit(
            f"{path} has several inputs or outputs, or a fixed batch. Export it without endpoints and batch."
        )
    return graph.input[0].name, graph.output[0].name


def lay_out(bundle: Path, repository: Path, name: str, batch: int) -> Path:
    """Writes the repository and returns the folder of the model in it."""
    about = json.loads((bundle / "model.json").read_text("utf-8"))
    input_name, output_name = tensor_names(bundle / "model.onnx")
    (source,), (result,) = about["inputs"], about["outputs"]
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    for path in bundle.glob("model*.onnx*"):  # with the data of a model over 2 GB
        shutil.copy(path, folder / "1")
    if about["labels"]:
        (folder / "labels.txt").write_text("\n".join(" ".join(label.split()) for label in about["labels"]) + "\n")
    config = CONFIG.format(
        name=json.dumps(name),
        batch=batch,
        input=json.dumps(input_name),
        input_type=TYPES[source["dtype"]],
        input_dims=dims(source["shape"]),
        output=json.dumps(output_name),
        output_type=TYPES[result["dtype"]],
        output_dims=dims(result["shape"]),
        labels=', label_filename: "labels.txt"' if about["labels"] else "",
    )
    (folder / "config.pbtxt").write_text(config)
    return folder


def main():
    parser = argparse.ArgumentParser(description="Lays a bundle's ONNX file out as a model repository of Triton.")
    parser.add_argument("bundle", type=Path, help="the folder that keras-vit export wrote, with model.onnx")
    parser.add_argument("repository", type=Path, help="the folder of the repository")
    parser.add_argument("--name", default="vit", help="of the model in the repository")
    parser.add_argument("--batch", type=int, default=32, help="the most images that Triton joins to a batch")
    arguments = parser.parse_args()
    if not (arguments.bundle / "model.onnx").is_file():
        parser.error(f"{arguments.bundle} has no model.onnx. Make one: keras-vit export MODEL --to onnx --out dist")
    if (arguments.repository / arguments.name).exists():
        parser.error(f"{arguments.repository / arguments.name} is already there. Choose another --name.")
    print(lay_out(arguments.bundle, arguments.repository, arguments.name, arguments.batch))


if __name__ == "__main__":
    main()
