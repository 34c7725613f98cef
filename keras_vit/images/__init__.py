"""Reads images upright: by Pillow (pillow.py) or inside a TensorFlow graph (tf_jpeg.py). Imports no other room."""
