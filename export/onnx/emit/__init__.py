"""The emitters: Keras operations and layers as ONNX nodes.

Each is called as `emit(graph, operation, out, *args, **kwargs)`. `out` is the traced output, or the list of them, with
shape and dtype; the arguments are those of the Keras operation, tensors as Values, and as arrays where they depend on
weights alone. It returns the Value of the output, or the list of them. A ValueError says that it cannot write this one.
`table.py` lists them all.
"""
