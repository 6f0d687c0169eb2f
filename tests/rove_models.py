"""Small random models of every architecture that RoVE is switched on in.

Sizes differ from one another (2 sequences, 3 layers, 4 heads, 2 KV heads, 11 tokens, 24 or 16
channels), and the weights are large enough that attention is far from uniform: an error shows.
"""

import copy
from functools import partial

import torch
from hf_models import small_config
from transformers import AutoModelForCausalLM

BASE = 500.0  # not what a config would say if it were not read
LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]


def small_model(model_type, *, yarn=None, attention=None, dtype=torch.float64, **changes):
    """A model of this family with random weights, the same at every call, in eval mode.

    Args:
        model_type: As in a Hugging Face config.
        yarn: The scaling's parameters besides its base, or None.
        attention: The attention implementation; None is "sdpa" where there is one (not Gemma 2).
        dtype: Of all parameters; they are drawn in float64 and rounded.
        **changes: What else the config says.
    """
    changes = copy.deepcopy(changes)  # for a config keeps the dict it is given, and it may change
    config = small_config(model_type, num_hidden_layers=len(LAYERS), **changes)
    if yarn is not None:
        parameters = config.rope_parameters
        for each in [parameters] if "rope_type" in parameters else parameters.values():
            each |= yarn
        config.max_position_embeddings = int(yarn["factor"]) * 64
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return draw_weights(model.double()).to(dtype).eval()


def draw_weights(model):
    """The model with weights so large that attention is far from uniform."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.dim() == 1:  # norms near their start, biases that are not nothing
                parameter += 0.3 * noise
            else:
                parameter.copy_(1.5 * noise / parameter.shape[-1] ** 0.5)
    return model


def rope(base=BASE, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base, **more}}


GEMMA3 = {
    "full_attention": rope(9000.0)["rope_parameters"],
    "sliding_attention": rope(300.0)["rope_parameters"],
}

# Hugging Face's model type to the maker of a model; what a maker takes is small_model's.
ARCHITECTURES = {
    model_type: partial(small_model, model_type, **changes)
    for model_type, changes in {
        "llama": rope(),
        "mistral": rope(),  # every layer sees a window of 8 tokens
        "qwen2": rope(),  # biases on queries, keys and values
        "qwen3": rope(),
        "gemma2": rope() | {"layer_types": LAYERS, "query_pre_attn_scalar": 24},
        "gemma3_text": {
            "layer_types": LAYERS,
            "rope_parameters": GEMMA3,
            "query_pre_attn_scalar": 24,
        },
        "olmo2": rope(),
        "cohere": rope() | {"logit_scale": 1.0},
        "phi": rope(partial_rotary_factor=0.5),
        "gptj": {},
        "gpt_neox": rope(partial_rotary_factor=0.25),
        "phi3": rope(),
    }.items()
}
