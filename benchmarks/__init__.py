"""One instrument for speed and memory: `python -m benchmarks --help`, from the repository's root. docs/performance.md.

subjects.py is the table of what is measured, peers.py of what it is measured beside. A case, such as inference of
ViT-B/16 on batches of 8, runs in a process of its own (processes.py), where its contestants take turns (timing.py).
"""
