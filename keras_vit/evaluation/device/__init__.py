"""The instrument for speed and memory: `figure_12` measures a user's models (Appendix D.5, Figure 12).

It is one process (process.py), one timer (timing.py) and what the machine is and has (machine.py). benchmarks/ stands
on these three too, and adds subjects and peers.
"""
