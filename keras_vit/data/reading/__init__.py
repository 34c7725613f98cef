"""From stored examples to pixels: their order, where they are, how they are decoded."""
