"""The GPT that Hugging Face has, too: its config, and their GPT-NeoX with its weights."""

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from rove_lab.model import GPTConfig

LIKE_GPT_NEOX = GPTConfig(
    d_vocab=31,
    d_model=24,
    n_layers=2,
    n_heads=3,
    base=100.0,
    rms_norm=False,
    tied=False,
    rotate_values=False,
)


def gpt_neox_of(ours):
    """Hugging Face's GPT-NeoX with the weights of a GPT that is LIKE_GPT_NEOX, float64."""
    theirs = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=31,
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=96,
            rotary_pct=1.0,
            rotary_emb_base=100.0,
            rope_parameters={
                "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0
            },
            use_parallel_residual=False,
            attention_bias=False,
            layer_norm_eps=1e-5,
        )
    ).double()  # fmt: skip
    body = theirs.gpt_neox
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
        body.embed_in.weight.copy_(ours.embed.weight)
        theirs.get_output_embeddings().weight.copy_(ours.unembed.weight)
        for block, layer in zip(ours.blocks, body.layers, strict=True):
            attn = block.attn
            fused = torch.stack((attn.W_Q, attn.W_K, attn.W_V), 1).mT  # [heads, 3, d_head, d_model]
            layer.attention.query_key_value.weight.copy_(fused.reshape(72, 24))
            layer.attention.dense.weight.copy_(attn.W_O.flatten(0, 1).T)
            layer.mlp.dense_h_to_4h.weight.copy_(block.mlp.W_in.weight)
            layer.mlp.dense_4h_to_h.weight.copy_(block.mlp.W_out.weight)
    return theirs.eval()
