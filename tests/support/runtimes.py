"""An artefact run on images in the runtime of its format, as its users would."""


def run_onnx(path, x):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def run_tflite(path, x):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    place = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(place, x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(place, x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def run_saved_model(path, x):
    import tensorflow as tf

    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    (output,) = signature(**{name: tf.constant(x)}).values()
    return output.numpy()


RUN = {"model.onnx": run_onnx, "model.tflite": run_tflite, "model": run_saved_model}
