"""The state dicts of timm and transformers, and the JSON files beside them."""
