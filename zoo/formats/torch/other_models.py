"""State dicts of models other than the paper's, recognised by the names of their tensors."""

import re

from keras_vit.zoo.formats.faults import Fault

# What only other models have, by the names of their tensors, in either library.
OTHER_MODELS = (
    (r"(^|\.)(dist_token|distillation_token)$", "has a distillation token"),
    (r"(^|\.)(reg_token|register_tokens)$", "has register tokens"),
    (r"(^|\.)(ls[12]|layer_scale[12])\.|(^|\.)(gamma_[12]|lambda_[12])$", "scales its branches (LayerScale)"),
    (r"(^|\.)(norm_pre|pre_layrnorm|pre_layernorm)\.", "normalizes before its first block (pre_norm)"),
    (r"(^|\.)(attn_pool|head\.probe)", "pools by attention (global_pool 'map')"),
    (r"(^|\.)fc_norm\.", "normalizes after pooling (fc_norm); models of the paper normalize before it"),
    (r"attn\.(q_norm|k_norm)\.", "normalizes queries and keys (qk_norm)"),
    (r"(attn|mlp)\.norm\.|patch_embed\.norm\.", "has norms inside attention, MLP or embedding"),
    (r"rel_pos|relative_position", "has relative positions"),
    (r"(^|\.|_)(rope|freqs|inv_freq)", "has rotary positions"),
    (r"mlp\.(fc1_g|fc1_x|gate|w1|w2|w3|w12)\b", "has a gated MLP"),
    (
        r"(^|\.)(decoder|mask_token|embeddings\.mask_token)",
        "fills in masked patches (mask token or decoder)",
    ),
    (r"\.running_mean$", "has batch norms"),
    (r"(^|\.)head_dist\.|distillation_classifier", "has a distillation head"),
    (r"attn\.(q_bias|v_bias)$", "has biases of queries and values alone"),
)


def require_ours(tensors):
    """Refuses models that compute something else than the paper's, by the tensors' names."""
    for pattern, what in OTHER_MODELS:
        name = next((name for name in tensors if re.search(pattern, name)), None)
        if name:
            raise Fault(f"holds {name}: its model {what}. This package cannot compute that model.")
    for name in tensors:
        weight = re.fullmatch(r"(.*\.(qkv|query|q_proj|to_q))\.weight", name)
        if weight and f"{weight[1]}.bias" not in tensors:
            raise Fault(
                f"holds {name} but not {weight[1]}.bias: its queries, keys or values have no bias "
                "(qkv_bias=False), while those of the paper's models have."
            )
