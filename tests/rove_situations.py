"""How far RoVE in a Hugging Face model is from the reference: every architecture and situation."""

import copy

import torch
from rove_models import ARCHITECTURES
from rove_reference import YARN, reference_logits
from test_compile import INDUCTOR
from transformers import DynamicCache, StaticCache

from rove_lab.huggingface import enable_rove

N = 11
TOKENS = torch.randint(3, 64, (2, N), generator=torch.Generator().manual_seed(2))
POSITIONS = torch.arange(N).expand(2, N)
GAPS = torch.tensor([[0, 1, 2, 5, 17, 18, 40, 41, 90, 300, 301], [7, 8, 9, *range(20, 28)]])
PADDING = torch.tensor([[0] * 4 + [1] * (N - 4), [1] * N])  # the first sequence starts late
PADDED_POSITIONS = (PADDING.cumsum(-1) - 1).clamp(min=0)
PROMPT = 5  # tokens before decoding starts


def largest(difference):
    return difference.detach().abs().max().item()


def full_pass(architecture, planes, **how):
    """One pass, positions and mask by default; `how` goes to the maker of the model."""
    model = ARCHITECTURES[architecture](**how)
    expected = reference_logits(model, TOKENS, POSITIONS)
    with enable_rove(model, planes=planes), torch.no_grad():
        return largest(model(TOKENS).logits - expected)


def eager(architecture, planes):
    return full_pass(architecture, planes, attention="eager")


def bfloat16(architecture, planes):
    return full_pass(architecture, planes, dtype=torch.bfloat16)


def yarn(architecture, planes):
    return full_pass(architecture, planes, yarn=YARN)


def position_gaps(architecture, planes):
    """Positions that skip; with a mask, without which they would mean several sequences."""
    model = ARCHITECTURES[architecture]()
    expected = reference_logits(model, TOKENS, GAPS)
    given = {"attention_mask": torch.ones_like(TOKENS), "position_ids": GAPS}
    with enable_rove(model, planes=planes), torch.no_grad():
        return largest(model(TOKENS, **given).logits - expected)


def model_for_padding(architecture):
    """In float64 Gemma 2's eager attention, its only one, gives NaN for padding, RoVE or not."""
    return ARCHITECTURES[architecture](
        dtype=torch.float32 if architecture == "gemma2" else torch.float64
    )


def left_padding(architecture, planes):
    """The padded sequence beside a longer one; held against the same sequence alone."""
    model = model_for_padding(architecture)
    given = {"attention_mask": PADDING, "position_ids": PADDED_POSITIONS}
    with enable_rove(model, planes=planes), torch.no_grad():
        logits = model(TOKENS, **given).logits
    errors = []
    for row, padding in enumerate((PADDING == 0).sum(-1).tolist()):
        n = N - padding
        alone = reference_logits(model, TOKENS[row : row + 1, padding:], POSITIONS[:1, :n])
        errors.append(largest(logits[row, padding:] - alone[0]))
    return max(errors)


def cached_decode(architecture, planes, cache_of):
    """A prompt at once, then token by token."""
    model = ARCHITECTURES[architecture]()
    expected = reference_logits(model, TOKENS, POSITIONS)
    cache, logits = cache_of(model.config), []
    with enable_rove(model, planes=planes), torch.no_grad():
        for tokens in (TOKENS[:, :PROMPT], *TOKENS[:, PROMPT:].split(1, dim=1)):
            logits.append(model(tokens, cache=cache, use_cache=True).logits)
    return largest(torch.cat(logits, 1) - expected)


def dynamic_cache(architecture, planes):
    return cached_decode(architecture, planes, lambda config: DynamicCache(config=config))


def static_cache(architecture, planes):
    def cache_of(config):
        return StaticCache(config=config, max_cache_len=N + 2)

    return cached_decode(architecture, planes, cache_of)


def generate(model, planes, mask):
    """Each step's logits and choice, held against one pass over all that was generated."""
    asked = {"do_sample": False, "max_new_tokens": 6, "eos_token_id": None, "pad_token_id": 0}
    told = {"output_logits": True, "return_dict_in_generate": True}
    with enable_rove(model, planes=planes):
        done = model.generate(TOKENS, attention_mask=mask, **asked, **told)
    mask = torch.cat((mask, torch.ones(2, 6, dtype=torch.int64)), 1)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    expected = reference_logits(model, done.sequences, positions, mask)[:, N - 1 : -1]
    if not torch.equal(expected.argmax(-1), done.sequences[:, N:]):
        return float("inf")
    return largest(torch.stack(done.logits, 1) - expected)


def greedy_generate(architecture, planes):
    return generate(ARCHITECTURES[architecture](), planes, torch.ones_like(TOKENS))


def generate_with_left_padding(architecture, planes):
    return generate(model_for_padding(architecture), planes, PADDING)


def gradients_of(model, loss):
    """The gradient of the loss with respect to every parameter, as one vector."""
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def loss_of(logits):
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3))
    return (weights * logits).mean()


def gradients(architecture, planes, checkpointing=False):
    """Two passes at different positions, then one backward pass for both."""
    model = ARCHITECTURES[architecture]()
    reference = copy.deepcopy(model)
    expected = gradients_of(
        reference,
        loss_of(reference_logits(reference, TOKENS, GAPS, grad=True))
        + loss_of(reference_logits(reference, TOKENS, POSITIONS, grad=True)),
    )
    if checkpointing:
        model.activation_checkpointing_enable()
    model.train()
    given = {"attention_mask": torch.ones_like(TOKENS), "use_cache": False}
    with enable_rove(model, planes=planes):
        first = model(TOKENS, position_ids=GAPS, **given).logits
        second = model(TOKENS, position_ids=POSITIONS, **given).logits
        found = gradients_of(model, loss_of(first) + loss_of(second))
    return largest(found - expected)


def gradient_checkpointing(architecture, planes):
    return gradients(architecture, planes, checkpointing=True)


def compiled(architecture, planes):
    """`torch.compile` of the whole model, without a break in its graph."""
    model = ARCHITECTURES[architecture]()
    expected = reference_logits(model, TOKENS, POSITIONS)
    torch._dynamo.reset()
    with enable_rove(model, planes=planes), torch.no_grad():
        found = torch.compile(model, fullgraph=True, backend=INDUCTOR)(TOKENS).logits
    return largest(found - expected)


SITUATIONS = {
    "full pass": full_pass,
    "eager attention": eager,
    "cached decode, dynamic": dynamic_cache,
    "cached decode, static": static_cache,
    "greedy generate": greedy_generate,
    "left padding": left_padding,
    "generate with left padding": generate_with_left_padding,
    "position gaps": position_gaps,
    "gradients": gradients,
    "gradient checkpointing": gradient_checkpointing,
    "bfloat16": bfloat16,
    "YaRN": yarn,
    "torch.compile": compiled,
}
# No YaRN in GPT-J, whose config has no scaling, nor in Phi-3, whose config turns it into longrope.
CELLS = [
    (architecture, situation)
    for situation in SITUATIONS
    for architecture in ARCHITECTURES
    if situation != "YaRN" or architecture not in ("gptj", "phi3")
]


def measured_error(architecture, situation, *, planes=None):
    """The largest absolute difference of logits (of gradients, where those are asked) from RoVE's.

    Args:
        architecture: A name of `ARCHITECTURES`.
        situation: A name of `SITUATIONS`.
        planes: The planes that turn in the model; the reference turns all, so that `planes=[]`
            shows how large an error would be.
    """
    return SITUATIONS[situation](architecture, planes)
