"""The GPT: what its equations say, and what it decodes."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from references_gpt import by_definition

from rove_lab.model import GPT, GPTConfig
from rove_lab.rotary import RotaryEmbedding
from rove_lab.self_attention import KVCache

SMALL = GPTConfig(d_vocab=31, d_model=24, n_layers=2, n_heads=4, n_kv_heads=2, d_head=8, base=100.0)
CONFIGS = {
    "RoVE": SMALL,
    "RoPE": replace(SMALL, rotate_values=False),
    "two planes": replace(SMALL, value_planes=(0, 2)),
    "LayerNorm, untied": replace(SMALL, rms_norm=False, tied=False, n_kv_heads=None),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def tokens_of(batch=2, n=7):
    return torch.randint(0, 31, (batch, n))


# What it computes


@each_config
def test_logits_are_those_of_the_equations(config):
    model, tokens = config.build().double(), tokens_of()
    torch.testing.assert_close(model(tokens), by_definition(model, tokens), atol=1e-11, rtol=0)
    single = config.build()
    torch.testing.assert_close(
        single(tokens).double(), by_definition(single, tokens), atol=1e-4, rtol=0
    )


@each_config
def test_a_shift_of_the_text_changes_nothing(config):
    model, tokens = config.build().double(), tokens_of()
    moved = model(tokens, positions=torch.arange(7) + 1000)
    torch.testing.assert_close(moved, model(tokens), atol=1e-10, rtol=0)


def test_the_arms_share_every_weight_of_one_seed():
    weights = []
    for rotate_values in (False, True):
        torch.manual_seed(3)
        weights.append(replace(SMALL, rotate_values=rotate_values).build().state_dict())
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


# Decoding


@each_config
def test_decoding_in_pieces_gives_the_whole(config):
    model, tokens = config.build().double(), tokens_of(n=9)
    cache = model.new_cache()
    pieces = [model(piece, cache=cache) for piece in tokens.split((4, 1, 3, 1), 1)]
    torch.testing.assert_close(torch.cat(pieces, 1), model(tokens), atol=1e-11, rtol=0)
    assert {held.k.shape[-2] for held in cache} == {9}


@each_config
def test_left_padding_changes_nothing(config):
    model, tokens = config.build().double(), tokens_of(n=9)
    padded = torch.cat((torch.zeros(2, 3, dtype=torch.long), tokens), 1)
    real = torch.arange(12) >= 3
    positions = (torch.arange(12) - 3).clamp(min=0)
    logits = model(padded, positions=positions, attn_mask=real)
    torch.testing.assert_close(logits[:, 3:], model(tokens), atol=1e-11, rtol=0)


@each_config
def test_greedy_generation_takes_the_likeliest_token_each_time(config):
    model, tokens = config.build(), tokens_of(n=4)
    text = model.generate(tokens, 5, temperature=0)
    assert torch.equal(text[:, :4], tokens)
    for n in range(4, 9):
        assert torch.equal(text[:, n], model(text[:, :n])[:, -1].argmax(-1))
    assert not text.requires_grad


def test_drawn_tokens_repeat_with_their_generator_and_follow_the_temperature():
    model, tokens = SMALL.build(), tokens_of(batch=1, n=3)

    def drawn(seed, temperature):
        generator = torch.Generator().manual_seed(seed)
        return model.generate(tokens, 20, temperature=temperature, generator=generator)

    assert torch.equal(drawn(0, 1.0), drawn(0, 1.0))
    assert not torch.equal(drawn(0, 1.0), drawn(1, 1.0))
    assert torch.equal(drawn(0, 1e-6), model.generate(tokens, 20, temperature=0))
    first = model.generate(tokens.expand(4000, -1), 1, temperature=2.0)[:, 3]
    likely = (model(tokens)[0, -1] / 2).softmax(-1)
    seen = torch.bincount(first, minlength=31) / 4000
    assert ((seen - likely).abs() < 5 * (likely / 4000).sqrt()).all()


# Sizes


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # tied: vocabulary; a layer's 4 d² of attention, 8 d² of MLP, 2 d of norms; d at last
        ("tiny", 256 * 128 + 2 * (12 * 128**2 + 2 * 128) + 128),
        ("small", 256 * 256 + 6 * (12 * 256**2 + 2 * 256) + 256),
        ("gpt2-124m", 50_257 * 768 + 12 * (12 * 768**2 + 2 * 768) + 768),
        ("gpt2-354m", 50_257 * 1024 + 24 * (12 * 1024**2 + 2 * 1024) + 1024),
    ],
)
@pytest.mark.parametrize("rotate_values", [False, True])
def test_a_preset_has_the_parameters_of_its_name(name, parameters, rotate_values):
    with torch.device("meta"):
        model = GPTConfig.preset(name, rotate_values=rotate_values).build()
    assert sum(weight.numel() for weight in model.parameters()) == parameters
    if name.startswith("gpt2"):
        assert round(parameters / 1e6) == int(name[5:8])


def test_tied_weights_are_one_tensor():
    tied, untied = SMALL.build(), replace(SMALL, tied=False).build()
    assert tied.unembed.weight is tied.embed.weight
    assert untied.unembed.weight is not untied.embed.weight
    extra = 31 * 24
    assert sum(p.numel() for p in untied.parameters()) == extra + sum(
        p.numel() for p in tied.parameters()
    )


def test_fresh_logits_are_of_order_one_at_any_depth():
    for n_layers in (1, 8):
        model = replace(SMALL, d_model=64, n_layers=n_layers, d_head=16).build()
        assert 0.5 < model(tokens_of(n=30)).std() < 2


def test_a_config_comes_back_from_json():
    config = CONFIGS["two planes"]
    assert GPTConfig(**json.loads(json.dumps(asdict(config)))) == config
    assert hash(config) != hash(SMALL)


def test_compiled_it_gives_the_same():
    model, tokens = SMALL.build(), tokens_of()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(tokens), model(tokens))


# What is refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_vocab": 0}, "d_vocab"),
        ({"n_layers": -1}, "n_layers"),
        ({"d_mlp": 0}, "d_mlp"),
        ({"d_head": None, "n_heads": 5, "n_kv_heads": None}, "d_model divisible by n_heads"),
        ({"n_kv_heads": 3}, "n_heads divisible by n_kv_heads, got 4 and 3"),
        ({"d_head": 7}, "rotary_dim"),
        ({"base": -1.0}, "base"),
        ({"value_planes": (4,)}, "plane"),
        (
            {"value_planes": (0,), "rotate_values": False},
            "no value_planes with rotate_values=False",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **changes)


@pytest.mark.parametrize("changes", [{"d_model": 1.5}, {"tied": 1}, {"rotate_values": "yes"}])
def test_sizes_of_another_type_are_refused(changes):
    with pytest.raises(TypeError, match=next(iter(changes))):
        replace(SMALL, **changes)


def test_an_unknown_preset_is_refused():
    with pytest.raises(ValueError, match="among tiny, small, gpt2-124m, gpt2-354m, got 'gpt-5'"):
        GPTConfig.preset("gpt-5")
    with pytest.raises(TypeError, match="expected a GPTConfig, got dict"):
        GPT({"d_vocab": 31})


def test_tokens_that_do_not_fit_are_refused():
    model = SMALL.build()
    with pytest.raises(TypeError, match=r"tensor of integers, got torch\.float32"):
        model(torch.zeros(1, 3))
    with pytest.raises(TypeError, match="tensor of integers, got list"):
        model([[1, 2]])
    with pytest.raises(TypeError, match=r"tensor of integers, got torch\.bool"):
        model(torch.ones(1, 3, dtype=torch.bool))
    for shape in ((3,), (1, 0), (0, 3), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"expected tokens \[batch, pos\]"):
            model(torch.zeros(shape, dtype=torch.long))
    with pytest.raises(IndexError):
        model(torch.tensor([[31]]))
    with pytest.raises(ValueError, match=r"positions"):
        model(tokens_of(), positions=torch.arange(5))


def test_caches_that_would_decode_wrongly_are_refused():
    model, tokens = SMALL.build(), tokens_of()
    one = KVCache()
    for cache in (
        model.new_cache()[:1],
        (one, one),
        (None, None),
        (),
        one,
        list(model.new_cache()),
    ):
        with pytest.raises(ValueError, match="a cache for each of 2 layers, none of them twice"):
            model(tokens, cache=cache)


def test_a_pass_that_was_stopped_half_way_is_not_continued():
    model, tokens, cache = SMALL.build(), tokens_of(), None
    cache = model.new_cache()
    model(tokens[:, :6], cache=cache)

    def stop(*_):
        raise KeyboardInterrupt

    hook = model.blocks[1].register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        model(tokens[:, 6:], cache=cache)
    hook.remove()
    with pytest.raises(ValueError, match=r"caches of one length, got \[7, 6\]"):
        model(tokens[:, 6:], cache=cache)
    first = cache[0]
    first.k, first.v, first.positions = (
        first.k[..., :6, :],
        first.v[..., :6, :],
        first.positions[:6],
    )
    torch.testing.assert_close(model(tokens[:, 6:], cache=cache), model(tokens)[:, 6:])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_bytes_are_tokens(dtype):
    model, tokens = SMALL.build(), tokens_of()
    assert torch.equal(model(tokens.to(dtype)), model(tokens))


def test_planes_may_come_as_a_tensor():
    given = replace(SMALL, value_planes=torch.tensor([0, 2]))
    assert given == CONFIGS["two planes"]
    assert hash(given) == hash(CONFIGS["two planes"])
    with pytest.raises(TypeError, match=r"a plane to be an integer, got 0\.5"):
        replace(SMALL, value_planes=[0.5])
    with pytest.raises(TypeError, match="value_planes"):
        replace(SMALL, value_planes=3)


def test_what_is_written_to_the_stream_is_smaller_the_more_layers_write():
    few, many = (replace(SMALL, n_layers=n).build().blocks[0] for n in (1, 16))
    for weight in ("attn.W_O", "mlp.W_out.weight"):
        ratio = few.get_parameter(weight).std() / many.get_parameter(weight).std()
        assert ratio.item() == pytest.approx(4, rel=0.2)


@pytest.mark.parametrize(("name", "tables"), [("RoPE", 1), ("RoVE", 1), ("two planes", 2)])
def test_a_pass_makes_a_table_once_for_all_layers(name, tables, monkeypatch):
    made, make = [], RotaryEmbedding.__call__

    def count(*arguments, **how):
        made.append(arguments)
        return make(*arguments, **how)

    model = CONFIGS[name].build()
    monkeypatch.setattr(RotaryEmbedding, "__call__", count)
    model(tokens_of())
    assert len(made) == tables


def test_generation_refuses_what_means_nothing():
    model = SMALL.build()
    with pytest.raises(ValueError, match="temperature of 0 or more, got -1"):
        model.generate(tokens_of(), 3, temperature=-1.0)
    with pytest.raises(ValueError, match="n_tokens"):
        model.generate(tokens_of(), 0)
    with pytest.raises(ValueError, match="one or more of each"):
        model.generate(torch.zeros(1, 0, dtype=torch.long), 3)
