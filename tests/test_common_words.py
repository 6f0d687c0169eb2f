"""Common words, counted."""

from collections import Counter

import pytest
from token_tasks import asked_answers, assert_solved, first, kind

from rove_lab.common_words import CommonWords

SIZES = [
    CommonWords(),
    CommonWords(n_symbols=4, n_ctx=8, n_common=2, ratio=2),
    CommonWords(n_symbols=5, n_ctx=100, n_common=1, ratio=3),
    CommonWords(n_ctx=512),
]


def words(task, sequence):
    """The words of the list, in their order."""
    listed = sequence[: sequence.index(task.question)]
    return [token for token in listed if kind(task, token) == "key"]


def reader(task, sequence):
    """The words that came more often than the rarest, in the order in which they first came."""
    counts = Counter(words(task, sequence))  # remembers that order
    common = [word for word, count in counts.items() if count > min(counts.values())]
    start = sequence.index(task.question)
    return {start + i: word for i, word in enumerate(common)}


@pytest.mark.parametrize("task", SIZES, ids=repr)
def test_the_answer_is_what_counting_gives(task):
    assert_solved(task, reader)


@pytest.mark.parametrize("task", SIZES, ids=repr)
def test_common_words_come_exactly_as_many_times_as_often(task):
    for sequence in first(task)[0].tolist():
        counts = Counter(words(task, sequence))
        assert len(counts) == task.n_symbols
        rare = min(counts.values())
        assert Counter(counts.values()) == {
            rare: task.n_symbols - task.n_common,
            rare * task.ratio: task.n_common,
        }
        noise = sum(kind(task, token) == "noise" for token in sequence)
        assert noise < task.n_symbols + task.n_common * (task.ratio - 1)  # or all came once more


def test_counts_grow_with_the_length_and_words_stand_everywhere():
    task = CommonWords(n_ctx=512)
    sequence = first(task, 1)[0][0].tolist()
    counts = Counter(words(task, sequence))
    assert max(counts.values()) == task.ratio * (508 // 25) == 80
    word = max(counts, key=counts.get)
    places = [t for t, token in enumerate(sequence) if token == word]
    assert places[0] < 60
    assert places[-1] > 440


def test_the_words_named_by_a_reader_of_the_first_or_last_few_are_wrong():
    """No shortcut: the first words of the list are common in 12 of 25 cases, as any others."""
    task, hits, n = CommonWords(), Counter(), 0
    for sequence, row in zip(*first(task, 512), strict=True):
        listed, answers = words(task, sequence.tolist()), asked_answers(row).values()
        hits["first"] += listed[0] in answers
        hits["last"] += listed[-1] in answers
        n += 1
    assert hits["first"] / n == pytest.approx(12 / 25, abs=0.1)
    assert hits["last"] / n == pytest.approx(12 / 25, abs=0.1)


@pytest.mark.parametrize(
    ("sizes", "error", "words"),
    [
        ({"n_common": 0}, ValueError, "expected n_common to be positive, got 0"),
        ({"n_common": 16}, ValueError, "n_symbols of 17 or more for 16 common words and a rare"),
        ({"ratio": 1}, ValueError, "expected a ratio of 2 or more, got 1"),
        ({"ratio": 1.5}, TypeError, "expected ratio to be an integer"),
        ({"n_ctx": 27}, ValueError, "n_ctx of 28 or more for 16 words, 3 of them 4 times, and the"),
    ],
)
def test_bad_sizes_are_refused(sizes, error, words):
    with pytest.raises(error, match=words):
        CommonWords(**sizes)
