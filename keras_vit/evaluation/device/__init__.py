"""The instrument for speed and memory: `figure_12` measures a user's models (Appendix D.5, Figure 12).

It consists of a process (process.py), and of a timer and a description of the machine (measuring.py). benchmarks/ uses
these too, and adds subjects and peers.
"""
