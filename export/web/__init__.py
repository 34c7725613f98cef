"""The page of a bundle, web/: the model in a browser, on the user's own device. See `page`."""

FOLDER = "web"  # of a bundle
# Every name that the page's files may have in a bundle.
PATTERN = (
    rf"{FOLDER}/(index\.html|page\.(js|css)|model\.json|model(-[a-z0-9]+)?\.onnx|"
    r"examples/\d\.(png|jpg|f32)|runtime/(ort[a-z.-]+\.(mjs|wasm)|LICENSE|ThirdPartyNotices\.txt))"
)
