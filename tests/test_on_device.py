"""The core on each device that is here, in float32 and bfloat16, beside the float64 reference."""

import pytest
import torch
from device_cases import AT_MOST, CASES, DTYPES, ONLY, asked_on, relative_error

NO_GPU = pytest.mark.skip(reason="no GPU here; `make gpu` asks the same where there is one")
EVERY = [
    pytest.param(device, name, dtype, id=f"{device}, {name}, {str(dtype)[6:]}", marks=marks)
    for device, marks in (("cpu", ()), ("cuda", () if torch.cuda.is_available() else NO_GPU))
    for name, dtype in asked_on(device)
]


# FlexAttention asks to be compiled, as it is on a GPU
@pytest.mark.filterwarnings("ignore:.*flex_attention.*:UserWarning")
@pytest.mark.parametrize(("device", "name", "dtype"), EVERY)
def test_a_device_computes_what_the_reference_does(device, name, dtype):
    found, exact = CASES[name](device, dtype)
    assert found.device.type == device
    assert found.shape == exact.shape
    assert exact.dtype == torch.float64
    assert relative_error(found, exact) < AT_MOST[dtype]


def test_a_gpu_is_asked_for_every_case_and_every_kernel():
    assert {name for name, _ in asked_on("cuda")} == {*CASES}
    assert {*ONLY} <= {*CASES}
    assert len(asked_on("cuda")) == 2 * len(CASES) - 3
    kernels = {name for name in CASES if name.endswith("kernel")}
    assert {name for name, _ in asked_on("cpu")} == {*CASES} - kernels | {
        "math kernel", "flash kernel"
    }  # fmt: skip


def test_the_error_is_relative_and_of_the_whole():
    exact = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert relative_error(torch.tensor([3.0, 4.5]), exact) == pytest.approx(0.1)
    assert {*AT_MOST} == {*DTYPES}
