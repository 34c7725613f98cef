"""Device time and memory (Appendix D.5, Figure 12): how fast models are, and how large a batch fits."""
