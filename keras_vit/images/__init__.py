"""Reading images, upright: by Pillow (pillow.py) or inside a TensorFlow graph (tf_*.py); below all other rooms."""
