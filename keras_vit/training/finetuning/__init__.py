"""The fine-tuning kit: what learns (freezing, LoRA), how fast each layer does, and how much each class counts."""
