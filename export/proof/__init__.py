"""Compares artefacts with their models, and reads artefacts from elsewhere without trusting them."""
