"""The layouts of the authors: vision_transformer, big_transfer and big_vision."""
