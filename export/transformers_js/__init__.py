"""transformers/ of a bundle: the model in the layout that transformers.js opens. See `layout`."""

WEB_LAYOUTS = ("transformers",)
FOLDER = "transformers"  # of a bundle
FILES = {"onnx/model.onnx": None, "onnx/model_quantized.onnx": "dynamic", "onnx/model_fp16.onnx": "mixed_float16"}
# Every name that the layout's files may have in a bundle.
PATTERN = rf"{FOLDER}/(config\.json|preprocessor_config\.json|onnx/model(_quantized|_fp16)?\.onnx)"
