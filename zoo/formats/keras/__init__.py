"""Keras' own files: whole models (.keras) and weights (.weights.h5)."""
