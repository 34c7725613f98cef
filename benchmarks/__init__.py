"""Speed and memory of Keras ViT beside its peers: `python -m benchmarks --help`, from the root. docs/performance.md.

subjects.py has the tables of what is measured, and of the peers that it is measured beside. A case, such as inference
of ViT-B/16 on batches of 8, runs in a process of its own, where its contestants take turns (cases.py): by the process,
the timer and the peak of memory of `keras_vit.evaluation.device`, which `keras-vit benchmark` asks too.
"""
