"""Masked patch prediction (Appendix B.1.2): the layers that corrupt and pick patches, and the model around them."""
