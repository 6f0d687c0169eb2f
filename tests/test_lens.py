"""lens: what is public, and the words where TransformerLens is missing."""

import subprocess
import sys

from rove_lab import lens


def test_every_public_name_is_there_and_comes_from_a_part():
    for name in lens.__all__:
        assert getattr(lens, name).__module__.startswith("rove_lab.lens_")


def test_says_what_to_install():
    code = "import sys; sys.modules['transformer_lens'] = None; import rove_lab.lens"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert 'TransformerLens, which is missing: pip install "rove-lab[lens]"' in done.stderr
