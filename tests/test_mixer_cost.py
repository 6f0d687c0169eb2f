"""What mixers cost: products that never build the matrix, and a dense matrix filled in place."""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from rove_lab import (
    BlockToeplitzMixer,
    GatedBlockToeplitzMixer,
    KroneckerMixer,
    RotaryEmbedding,
    rope_mixer,
    rove_mixer,
)
from rove_lab.matrix_mixer import Mixer


def kronecker(q_len, k_len, d):
    torch.manual_seed(0)
    return rope_mixer(torch.rand(q_len, k_len), torch.randn(d, d))


def gated(q_len, k_len, d):
    torch.manual_seed(0)
    return GatedBlockToeplitzMixer(torch.rand(q_len, k_len), torch.randn(q_len + k_len - 1, d, d))


def toeplitz(q_len, k_len, d):
    torch.manual_seed(0)
    return BlockToeplitzMixer(torch.randn(q_len + k_len - 1, d, d))


def rotary(q_len, k_len, d):
    torch.manual_seed(0)
    where = {"positions": range(q_len), "key_positions": range(k_len)}
    return rove_mixer(torch.rand(q_len, k_len), torch.randn(d, d), RotaryEmbedding(d), **where)


def name(build):
    return build.__name__


class Work(TorchDispatchMode):
    """Counts the numbers that operations write, and notes the largest tensor among them."""

    def __init__(self):
        super().__init__()
        self.written = self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not func.is_view:
            self.written += out.numel()
            self.largest = max(self.largest, out.numel())
        return out


# The general product takes a step for each of the 2n - 1 offsets: fewer tokens keep the test short.
@pytest.mark.parametrize(
    ("build", "n"), [(kronecker, 4096), (gated, 1024), (toeplitz, 4096), (rotary, 4096)]
)
def test_products_never_build_the_matrix(build, n, monkeypatch):
    """At 4096 tokens the matrix has a billion numbers; nothing made on the way comes near."""
    mixer = build(n, n, 8)

    def refuse(self, max_bytes=0):
        raise AssertionError("a product must not build the matrix")

    monkeypatch.setattr(Mixer, "to_dense", refuse)
    with Work() as work:
        y = mixer @ torch.ones(n, 8)
    assert y.shape == (n, 8)
    assert y.isfinite().all()
    kernels = 2 * n * 8 * 8
    assert work.largest <= 4 * kernels  # the FFT of the kernels, padded and complex, at most


def test_a_convolution_takes_n_log_n():
    """Eight times the tokens: eight times the work (and a few logarithms), not sixty-four."""
    work = []
    for n in (512, 4096):
        mixer, x = toeplitz(n, n, 4), torch.ones(n, 4)
        with Work() as counted, FlopCounterMode(display=False) as flops:
            mixer @ x
        work.append((counted.written, flops.get_total_flops()))
    (few, few_flops), (many, many_flops) = work
    assert few > 0
    assert many <= 8.1 * few
    assert many_flops <= 8.1 * few_flops


def test_a_rotary_product_grows_with_one_width_not_two():
    """O(n² d) where general kernels cost O(n² d_in d_out), counted in multiplications."""
    n, flops = 128, {}
    for build, d in itertools.product((rotary, gated), (16, 32)):
        mixer, x = build(n, n, d), torch.ones(n, d)
        with FlopCounterMode(display=False) as counter:
            mixer @ x
        flops[build, d] = counter.get_total_flops()
    for d in (16, 32):
        assert flops[rotary, d] == 2 * n * n * d + 2 * n * d * d
        assert flops[gated, d] == 2 * n * n * d * d


def peak_bytes(function):
    """What `function` made, and the most bytes torch held at once, by torch's own profiler."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        made = function()
    events = sorted(profile.profiler.kineto_results.events(), key=lambda e: e.start_ns())
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    return made, max(itertools.accumulate(changes))


@pytest.mark.parametrize("shape", [(48, 48), (2, 512), (512, 2), (1, 2048)])
@pytest.mark.parametrize("build", [kronecker, gated, rotary], ids=name)
def test_the_dense_matrix_is_filled_in_place(build, shape):
    mixer = build(*shape, 32)
    M, peak = peak_bytes(mixer.to_dense)
    assert M.nbytes <= peak <= 1.15 * M.nbytes


def test_the_dense_convolution_is_filled_in_place():
    M, peak = peak_bytes(toeplitz(48, 48, 32).to_dense)
    assert M.nbytes <= peak <= 1.15 * M.nbytes


def double_loop(mixer):
    """The matrix written block by block as the definition has it, A_ij times the channel map."""
    n, d_out, d_in = mixer.q_len, mixer.d_out, mixer.d_in
    if isinstance(mixer, KroneckerMixer):

        def channel_map(delta):
            return mixer.channel_map.mT

    elif isinstance(mixer, GatedBlockToeplitzMixer):

        def channel_map(delta):
            return mixer.kernels[delta + n - 1].mT

    else:
        R = mixer.rotary.matrix(range(-(n - 1), n), dtype=mixer.dtype)

        def channel_map(delta):
            return R[delta + n - 1] @ mixer.W_V.mT

    M = torch.empty(mixer.shape, dtype=mixer.dtype)
    for i, j in itertools.product(range(n), range(n)):
        rows, columns = slice(i * d_out, (i + 1) * d_out), slice(j * d_in, (j + 1) * d_in)
        M[rows, columns] = mixer.pattern[i, j] * channel_map(j - i)
    return M


def seconds(function, clock):
    start = clock()
    function()
    return clock() - start


def speed_up(mixer, rounds, clock):
    """How many times faster to_dense is than the double loop, each at its best of paired rounds."""
    slow, fast = [], []
    for _ in range(rounds):
        slow.append(seconds(lambda: double_loop(mixer), clock))
        fast.append(seconds(mixer.to_dense, clock))
    return min(slow) / min(fast)


loops = pytest.mark.parametrize("build", [kronecker, gated, rotary], ids=name)


@loops
def test_the_dense_matrix_is_filled_faster_than_block_by_block(build):
    """On one thread, by CPU time, which a busy machine stretches less than the clock's."""
    mixer = build(96, 96, 16)
    torch.testing.assert_close(mixer.to_dense(), double_loop(mixer), rtol=0, atol=1e-5)
    assert speed_up(mixer, rounds=3, clock=time.process_time) >= 4


@pytest.mark.slow
@loops
def test_a_gibibyte_is_filled_four_times_faster_than_block_by_block(build):
    """As a reader would run it: torch's own number of threads, by the clock."""
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        assert speed_up(build(256, 256, 64), rounds=2, clock=time.perf_counter) >= 4
    finally:
        torch.set_num_threads(threads)


RESIDENT = """
import pathlib, resource, sys
import torch
import test_mixer_cost as cost
torch.set_num_threads(1)
status = pathlib.Path("/proc/self/status")
def resident():
    if not status.exists():  # macOS counts in bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux's ru_maxrss remembers the parent's peak across exec; the high-water mark does not
    return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
mixer = getattr(cost, sys.argv[1])(256, 256, 64)
before = resident()
M = mixer.to_dense()
print((resident() - before) / M.nbytes)
"""


@pytest.mark.slow
@pytest.mark.parametrize("build", [kronecker, gated, toeplitz, rotary], ids=name)
def test_a_gibibyte_takes_little_more_than_a_gibibyte(build):
    """What the system gave a fresh process, not what torch says it took."""
    here = Path(__file__).parent
    ran = subprocess.run(
        [sys.executable, "-c", RESIDENT, build.__name__],
        cwd=here,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), str(here)])},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert 0.95 <= float(ran.stdout) <= 1.15
