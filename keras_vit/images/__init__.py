"""Reading images, upright; below all rooms."""
