"""The page of a bundle, web/: the model in a browser, on the user's own device. See `page`."""

FOLDER = "web"  # of a bundle
# Every name that the page's files may have in a bundle.
PATTERN = (
    rf"{FOLDER}/(index\.html|page\.(js|css)|model\.(json|onnx)|"
    r"examples/\d\.(png|jpg|f32)|runtime/(ort[a-z.-]+\.(mjs|wasm)|LICENSE|ThirdPartyNotices\.txt))"
)

WEB_LAYOUTS = ("transformers",)
LAYOUT = "transformers"  # of a bundle: the model in the layout that transformers.js opens, see `transformers_js`
LAYOUT_FILES = {"onnx/model.onnx": None, "onnx/model_quantized.onnx": "dynamic"}
# Every name that the layout's files may have in a bundle.
LAYOUT_PATTERN = rf"{LAYOUT}/(config\.json|preprocessor_config\.json|onnx/model(_quantized)?\.onnx)"
