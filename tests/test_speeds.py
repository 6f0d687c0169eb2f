"""speeds: rows by case, and beside their limits."""

import pytest

from rove_lab.speeds import by_case, kept, missed

RATIO = "RoVE / RoPE"
SECTION = {
    "1x2 float32": {
        "forward": {"RoVE": {"ms": [3.0, 5.0]}, RATIO: {"ratio": [1.2, 1.4], "rounds": [9, 9]}},
        "forward and backward": {RATIO: {"ratio": [1.1, 1.0]}},
    },
    "8x2 float32": {
        "forward": {"RoVE": {"ms": [7.0, 9.0]}, RATIO: {"ratio": [1.3, 1.6]}},
        "forward and backward": {RATIO: {"ratio": [1.05, 1.01]}},
    },
}
JUDGED = {
    "rotation": {
        "1x2": {
            "forward": {
                "ours / clone": {"ratio": [1.5, 1.75], "at most": [1.7, 1.7], "met": [1, 0]},
                "ours / others": {"ratio": [0.25, 0.3], "at most": [0.3, 0.3], "met": [1, 1]},
                "ours": {"ms": [1.0, 2.0]},
            }
        }
    },
    "growth": {"rotations": {"exponent": [1.25, 1.5], "at most": [1.1, 1.1], "met": [0, 0]}},
    "mixers": {"dense / product": {"ratio": [120.0, 80.5], "at least": [100.0] * 2, "met": [1, 0]}},
    "kernels": {"flash": {"relative error": [1e-7] * 2, "at most": [1e-5] * 2, "met": [1, 1]}},
}


def test_one_row_of_every_case_by_kind_and_repetition():
    assert by_case(SECTION, RATIO, "ratio") == {
        "forward": [[1.2, 1.3], [1.4, 1.6]],
        "forward and backward": [[1.1, 1.05], [1.0, 1.01]],
    }
    forward = {case: {"forward": kinds["forward"]} for case, kinds in SECTION.items()}
    assert by_case(forward, "RoVE", "ms") == {"forward": [[3.0, 7.0], [5.0, 9.0]]}


@pytest.mark.parametrize(
    ("name", "score", "there"),
    [("RoPE", "ms", r"RoVE, RoVE / RoPE, got 'RoPE'"), ("RoVE", "ratio", r"ms, got 'ratio'")],
)
def test_a_row_or_a_score_that_is_not_there_is_refused(name, score, there):
    with pytest.raises(ValueError, match=rf"expected a name among {there}"):
        by_case(SECTION, name, score)


def test_a_limit_is_kept_in_every_repetition_or_missed():
    assert str(kept(JUDGED)).split("\n")[1:] == [
        "rotation, 1x2, forward, ours / others 0.275 [0.250, 0.300] 0.300"
    ]
    rows = [line.split("  ")[0] for line in str(missed(JUDGED)).split("\n")[1:]]
    assert rows == [
        "rotation, 1x2, forward, ours / clone",
        "growth, rotations",
        "mixers, dense / product (at least)",
    ]
    assert "1.625 [1.500, 1.750] " in str(missed(JUDGED))
    assert "1.375 [1.250, 1.500] " in str(missed(JUDGED["growth"]))


def test_where_no_limit_was_kept_or_missed_there_is_no_table():
    with pytest.raises(ValueError, match="rows that missed a limit, got none among kernels"):
        missed({"kernels": JUDGED["kernels"]})
    with pytest.raises(ValueError, match="rows that kept a limit, got none among rotations"):
        kept(JUDGED["growth"])
