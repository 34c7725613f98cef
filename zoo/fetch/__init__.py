"""Fetches files from the web once, checks them, and keeps them in the cache."""
