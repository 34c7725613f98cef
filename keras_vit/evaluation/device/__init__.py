"""The instrument for speed and memory: `figure_12` measures a user's models (Appendix D.5, Figure 12).

It consists of a process (process.py), a timer (timing.py) and a description of the machine (machine.py). benchmarks/
uses these three too, and adds subjects and peers.
"""
