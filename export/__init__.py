"""Exports models to ONNX, TFLite, SavedModel, StableHLO and OpenVINO, and compares each with its model first.

>>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10)
>>> report = keras_vit.export.convert(model, "vit.onnx")
>>> report.max_abs_diff < 1e-4
True

Which models can be exported. Any built keras.Model. These attributes are used if the model has them:

- `model.preprocessing`: None, or a callable that takes uint8 images (n, h, w, c), all of one size, and returns the
  model's float inputs. It is written with keras.ops and has the fields `image_size` (height, width), `mean` and `std`
  (of pixels in [0, 1]), `interpolation`, `crop` and `crop_mode`, which mean what they do in `models.Preprocessing`.
- `model.labels`: None, or a tuple with the names of the classes, in the order of the logits. Outputs that end in
  softmax or sigmoid are taken as the probabilities; of other outputs the softmax, or the sigmoid of a single one.
- `model.config`: a dataclass, which becomes a part of the artefact's description. A page draws attention over its
  `grid` (rows, columns) of patches.
- `model.gives_vectors`: whether the outputs are vectors, which no softmax makes probabilities.
- methods of the model's inputs, such as `model.features` and `model.attention`: a SavedModel can have them as
  endpoints.
- `model.with_attention`, of the model's inputs, returns the model's only output and `model.attention` from one pass:
  every format except a SavedModel can have both as outputs.

What a layer must do. The exporter calls `layer.call` on symbolic tensors, so a layer that uses keras.ops needs no code
for export, as long as it draws random numbers only in training. A layer may have a method `export_call`, with the
arguments of `call` and the same result from fewer operations. ONNX, OpenVINO and TFLite use it instead of `call`.

How a format is added: see `formats`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
