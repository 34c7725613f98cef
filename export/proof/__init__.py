"""Comparing artefacts with their models, and reading artefacts from elsewhere without trusting them."""
