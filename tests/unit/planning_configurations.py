"""Small random configurations of every family, with options that change the parameter count on or off."""

from __future__ import annotations

import random
from typing import Any


def small(kind: str, number: random.Random) -> dict[str, Any]:
    """A small configuration of a family, with each option that changes the parameter count on or off."""

    def either() -> bool:
        return number.random() < 0.5

    a = number.choice((2, 4, 8))
    h, d, f = a * number.choice((16, 24, 32)), number.choice((8, 16, 32)), number.choice((48, 96, 200))
    layers, vocab = number.choice((1, 2, 3, 5)), number.choice((97, 128, 1000))
    words: dict[str, Any] = {"vocab_size": vocab, "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1}
    if either():
        words["tie_word_embeddings"] = either()
    usual: dict[str, Any] = {
        "hidden_size": h,
        "num_hidden_layers": layers,
        "num_attention_heads": a,
        "intermediate_size": f,
        "max_position_embeddings": number.choice((64, 100)),
    }
    rotary: dict[str, Any] = {**words, **usual, "num_key_value_heads": number.choice((1, 2, a))}
    biased = {"attention_bias": either()}
    headed = {"head_dim": d} if either() else {}
    experts = {
        "num_experts": number.choice((4, 8)),
        "moe_intermediate_size": 24,
        "decoder_sparse_step": number.choice((1, 2)),
        "mlp_only_layers": [0] if either() else [],
    }
    latent = {
        "q_lora_rank": number.choice((None, 24)),
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 24,
        "n_routed_experts": 8,
        "n_shared_experts": number.choice((1, 2)),
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "first_k_dense_replace": number.choice((0, 1, 2)),
        "n_group": 1,
        "topk_group": 1,
        "num_key_value_heads": a,
    }
    gpt = {
        "n_embd": h,
        "n_layer": layers,
        "n_head": a,
        "n_positions": 64,
        "n_inner": number.choice((None, f)),
    }
    own: dict[str, dict[str, Any]] = {
        "llama": {**rotary, **biased, **headed, "mlp_bias": either()},
        "granite": {**rotary, **biased, "mlp_bias": either()},
        "smollm3": {**rotary, **biased, "mlp_bias": either()},
        "mistral": {**rotary, **headed},
        "mixtral": {**rotary, **headed, "num_local_experts": number.choice((2, 8))},
        "qwen2_moe": {**rotary, **experts, "shared_expert_intermediate_size": 40, "qkv_bias": either()},
        "qwen3_moe": {**rotary, **experts, **headed, **biased},
        "cohere": {**rotary, **biased, "use_qk_norm": either()},
        "phi": {**rotary, "qk_layernorm": either()},
        "phi3": {**rotary},
        "qwen2": {**rotary},
        "deepseek_v2": {**rotary, **latent, **biased, "mlp_bias": either()},
        "deepseek_v3": {**rotary, **latent, **biased},
        "gpt2": {**words, **gpt},
        "gptj": {**words, **gpt, "rotary_dim": 4},
        "gpt_neox": {**words, **usual, **biased},
        "bloom": {**words, "hidden_size": h, "n_layer": layers, "n_head": a},
        "bert": {**words, **usual, "type_vocab_size": number.choice((1, 2))},
        "roberta": {**words, **usual, "type_vocab_size": number.choice((1, 2))},
        "vit": {
            **usual,
            "image_size": number.choice((32, 48)),
            "patch_size": number.choice((8, 16)),
            "num_channels": number.choice((1, 3)),
            "qkv_bias": either(),
        },
        "opt": {
            **words,
            "hidden_size": h,
            "num_hidden_layers": layers,
            "num_attention_heads": a,
            "ffn_dim": f,
            "word_embed_proj_dim": number.choice((h, 32)),
            "do_layer_norm_before": either(),
            "enable_bias": either(),
            "layer_norm_elementwise_affine": either(),
        },
        "falcon": {
            **words,
            "hidden_size": h,
            "num_hidden_layers": layers,
            "num_attention_heads": a,
            "num_kv_heads": number.choice((1, 2, None)),
            "multi_query": either(),
            "new_decoder_architecture": either(),
            "parallel_attn": either(),
            "bias": either(),
            "ffn_hidden_size": number.choice((None, f)),
            "num_ln_in_parallel_attn": number.choice((1, 2, None)),
        },
        "t5": {
            **words,
            "d_model": h,
            "d_kv": d,
            "d_ff": f,
            "num_layers": layers,
            "num_decoder_layers": number.choice((1, 4)),
            "num_heads": a,
            "relative_attention_num_buckets": number.choice((8, 32)),
            "feed_forward_proj": number.choice(("relu", "gated-gelu")),
        },
    }
    return own.get(kind, {**rotary, **biased, **({} if kind in ("olmo", "olmo2", "cohere2") else headed)})
