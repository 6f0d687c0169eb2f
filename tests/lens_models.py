"""How far a TransformerLens bridge is from its Hugging Face model: every architecture, situation.

Without RoVE a bridge is held against the plain model, with RoVE against the float64 reference that
knows neither hooks nor caches.
"""

from contextlib import nullcontext

import torch
from rove_models import ARCHITECTURES
from rove_reference import reference_logits
from rove_situations import PADDING, PROMPT, TOKENS, N, largest

from rove_lab.lens import bridge_from_huggingface, rove_hooks

NEW = 6  # tokens to generate
ONES = torch.ones_like(TOKENS)


def expected(model, rove, tokens, mask):
    """The logits of the model itself, or of the reference with RoVE."""
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    if rove:
        return reference_logits(model, tokens, positions, mask)
    with torch.no_grad():
        return model(tokens, attention_mask=mask, position_ids=positions).logits


def alone(model, rove, tokens, mask):
    """The logits of each sequence by itself, without its padding; zeros where the padding is."""
    rows = []
    for row, padding in enumerate((mask == 0).sum(-1).tolist()):
        short = tokens[row : row + 1, padding:]
        logits = expected(model, rove, short, torch.ones_like(short))[0]
        rows.append(torch.nn.functional.pad(logits, (0, 0, padding, 0)))
    return torch.stack(rows)


def full_pass(bridge, model, rove):
    return largest(bridge(TOKENS) - expected(model, rove, TOKENS, ONES))


def cached_decode(bridge, model, rove):
    """A prompt at once, then token by token."""
    cache, steps = None, []
    for tokens in (TOKENS[:, :PROMPT], *TOKENS[:, PROMPT:].split(1, dim=1)):
        how = {"past_key_values": cache, "use_cache": True, "return_type": "logits_and_cache"}
        logits, cache = bridge(tokens, **how)
        steps.append(logits)
    return largest(torch.cat(steps, 1) - expected(model, rove, TOKENS, ONES))


def left_padding(bridge, model, rove):
    """The padded sequence beside a longer one; held against each sequence alone."""
    logits = bridge(TOKENS, attention_mask=PADDING) * PADDING[..., None]
    return largest(logits - alone(model, rove, TOKENS, PADDING))


def generate(bridge, model, rove, mask=ONES):
    """Each step's logits and choice, held against one pass over all that was generated."""
    asked = {"do_sample": False, "stop_at_eos": False, "verbose": False, "output_logits": True}
    done = bridge.generate(TOKENS, NEW, attention_mask=mask, return_type="tokens", **asked)
    mask = torch.cat((mask, torch.ones(2, NEW, dtype=torch.int64)), 1)
    steps = alone(model, rove, done.sequences, mask)[:, N - 1 : -1]
    if not torch.equal(steps.argmax(-1), done.sequences[:, N:]):
        return float("inf")
    return largest(torch.stack(done.logits, 1) - steps)


def generate_with_left_padding(bridge, model, rove):
    return generate(bridge, model, rove, PADDING)


SITUATIONS = {
    "full pass": full_pass,
    "cached decode": cached_decode,
    "generate": generate,
    "left padding": left_padding,
    "generate with left padding": generate_with_left_padding,
}
CELLS = [
    (architecture, situation, rove)
    for situation in SITUATIONS
    for architecture in ARCHITECTURES
    for rove in (False, True)
]


def measured_error(architecture, situation, rove=True, *, planes=None):
    """The largest absolute difference of a bridge's logits from those expected.

    In float64, and in float32 with padding, for which TransformerLens gives NaN in float64.

    Args:
        architecture: A name of `ARCHITECTURES`.
        situation: A name of `SITUATIONS`.
        rove: Whether RoVE is on.
        planes: The planes that turn in the bridge; the reference turns all, so that `planes=[]`
            shows how large an error would be.
    """
    dtype = torch.float32 if "padding" in situation else torch.float64
    model = ARCHITECTURES[architecture](dtype=dtype)
    bridge = bridge_from_huggingface(model)
    hooks = rove_hooks(bridge, planes=planes) if rove else []
    with torch.no_grad(), bridge.hooks(fwd_hooks=hooks) if hooks else nullcontext():
        return SITUATIONS[situation](bridge, model, rove)
