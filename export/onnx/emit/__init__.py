"""The emitters: Keras operations and layers as ONNX nodes."""
