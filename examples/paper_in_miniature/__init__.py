"""The paper's claims, measured small: `python -m examples.paper_in_miniature --help`, from the repository's root."""
