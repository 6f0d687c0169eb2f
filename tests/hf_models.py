"""Small models and rotary modules of transformers, and what their attention gets to see."""

import importlib

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

POSITIONS = torch.tensor([[0, 1, 5, 17, 40, 300]])
N = POSITIONS.shape[-1]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 4}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
SMALL = {
    "hidden_size": 64,
    "n_embd": 64,
    "num_attention_heads": 4,
    "n_head": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "rotary_dim": 8,
    "num_hidden_layers": 8,
    "n_layer": 8,
    "intermediate_size": 32,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "n_positions": 512,
    "sliding_window": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OWN_SIZES = {
    "deepseek_v4": {
        "head_dim": 32,
        "partial_rotary_factor": 0.25,
        "layer_types": ["sliding_attention", "compressed_sparse_attention"] * 2
        + ["heavily_compressed_attention", "sliding_attention"] * 2,
    },
    "helium": {"head_dim": 16},
}


def small_config(model_type, **changes):
    """A config of this family with small sizes, so that a model of it is made in milliseconds."""
    fields = type(AutoConfig.for_model(model_type)).__dataclass_fields__
    sizes = {name: size for name, size in SMALL.items() if name in fields}
    return AutoConfig.for_model(model_type, **sizes | OWN_SIZES.get(model_type, {}) | changes)


def queries_and_keys(config):
    """Each layer's (query, key) as its attention gets them: at POSITIONS, and all at position 0.

    The attention gives zeros, so that no layer's input depends on positions, and what differs
    between the two is the rotation alone.
    """
    seen = {}

    def attention(module, query, key, value, mask, **_):
        seen[module.layer_idx] = (query[:, :, :N], key[:, :, :N])
        return torch.zeros(*query.shape[:2], query.shape[2], value.shape[-1]).transpose(1, 2), None

    ALL_ATTENTION_FUNCTIONS.register("recorder", attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register("recorder", eager_mask)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="recorder").eval()
    tokens = torch.arange(3, 3 + N)[None]
    turned, straight = {}, {}
    with torch.no_grad():
        for positions, kept in ((POSITIONS, turned), (0 * POSITIONS, straight)):
            seen.clear()
            model(tokens, position_ids=positions, use_cache=False)
            kept.update(seen)
    assert sorted(turned) == sorted(straight) == list(range(config.num_hidden_layers))
    return turned, straight


def code_of(config):
    return importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))


def rotary_module(config):
    """The rotary module of transformers for this config, as its own code makes it."""
    code = code_of(config)
    (module,) = [
        value
        for name, value in vars(code).items()
        if name.endswith("RotaryEmbedding")
        and "Vision" not in name
        and value.__module__ == code.__name__
    ]
    return module(config)
