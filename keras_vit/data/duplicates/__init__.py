"""Near-duplicates between training and test images (section 4.1): finding them, and training without them."""
