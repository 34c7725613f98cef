"""TFLite files in LiteRT."""


def load_tflite(path, names=None):
    """A function from a list of arrays to the list of outputs; without `names`, the inputs' order is the file's own."""
    import os

    from ai_edge_litert.interpreter import Interpreter

    # LiteRT prints "Created TensorFlow Lite XNNPACK delegate for CPU", and no option of it says not to.
    standard_error, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        interpreter = Interpreter(model_path=str(path), num_threads=min(os.cpu_count() or 1, 8))
        interpreter.allocate_tensors()
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nowhere)
    runner = interpreter.get_signature_runner()
    names = names or list(runner.get_input_details())

    def position(name):
        """TensorFlow calls unnamed outputs output_0, output_1, ..., and sorts named ones as text, as Keras does."""
        number = name.removeprefix("output_")
        return (int(number), "") if number != name and number.isdecimal() else (0, name)

    def run(inputs):
        outputs = runner(**dict(zip(names, inputs, strict=True)))
        return [outputs[name] for name in sorted(outputs, key=position)]

    return run


load = load_tflite
