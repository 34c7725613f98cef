"""Models out: SavedModel, TFLite and ONNX, each proved equal to its model before it appears.

>>> report = keras_vit.export.convert(model, "vit.onnx")
>>> report.max_abs_diff
1.2e-06

What a model may bring. Any keras.Model is accepted; of these attributes each is used where it is there:

- `model.preprocessing`: None, or a callable from uint8 pictures (n, h, w, c) of any one size to the model's float
  inputs, written with keras.ops, with the fields `image_size` (height, width), `mean`, `std` (of pixels in [0, 1]),
  `interpolation`, `crop` and `crop_mode`.
- `model.labels`: None, or a tuple with the names of the classes in the order of the logits.
- methods such as `model.features` and `model.attention`, inputs to a tensor: endpoints of a SavedModel when asked for.
- `model.config`: a dataclass, written into the artefact's description.

What a layer must be. Layers are entered by calling `layer.call` on symbolic tensors, so a layer needs nothing for
export as long as it uses keras.ops, and draws random numbers in training alone. A layer whose `call` can be said in
fewer operations may have `export_call`, which ONNX and TFLite follow in its place.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
