"""ONNX files in onnxruntime."""

from pathlib import Path


def load_onnx(path, names=None):
    """A function from a list of arrays to the list of outputs; the inputs' order is the file's own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    beside = [x.name for x in Path(path).parent.iterdir() if x.name.startswith(f"{Path(path).stem}-")]
    if any(name.endswith(".onnx.data") for name in beside):
        # Weights in a second file are large, and prepacked ones are a second copy in memory.
        options.add_session_config_entry("session.disable_prepacking", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))


load = load_onnx
