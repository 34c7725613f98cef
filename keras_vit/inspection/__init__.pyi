from .attention import attention_weights, rollout

__all__ = [
    "attention_weights",
    "rollout",
]
