"""Token tasks of several sizes for the tests, and how far a plain reader of them gets."""

from collections import Counter

from rove_lab.associative_recall import AssociativeRecall
from rove_lab.common_words import CommonWords
from rove_lab.in_context_functions import FunctionClassification
from rove_lab.induction import Induction
from rove_lab.needles import Needles
from rove_lab.variable_tracking import VariableTracking

USUAL = [
    Induction(),
    AssociativeRecall(),
    Needles(),
    VariableTracking(),
    CommonWords(),
    FunctionClassification(),
]
TIGHT = [  # so short that no room is left over
    Induction(n_symbols=2, n_ctx=7, n_segment=4),
    AssociativeRecall(n_symbols=3, n_ctx=11, n_pairs=3, n_queries=3),
    Needles(n_symbols=3, n_ctx=19, n_keys=3, n_values=2, n_queries=2),
    VariableTracking(n_symbols=4, n_ctx=17, n_chains=2, n_hops=1, n_queries=2),
    CommonWords(n_symbols=4, n_ctx=8, n_common=2, ratio=2),
    FunctionClassification(n_symbols=2, n_ctx=21, n_examples=3, n_features=3, n_queries=2),
]


def first(task, batch_size=64, seed=0):
    """The first batch."""
    return next(task.batches(batch_size, seed))


def kind(task, token):
    """Noise, key, value or mark."""
    return ["noise", "key", "value", "mark"][min(token // task.n_symbols, 3)]


def asked_answers(targets):
    """Position to answer, of a row of targets."""
    return {t: answer for t, answer in enumerate(targets.tolist()) if answer != -100}


def assert_solved(task, reader, batch_size=64):
    """The reader's answers, in the first batch, are the targets, neither more nor fewer."""
    for sequence, row in zip(*first(task, batch_size), strict=True):
        assert reader(task, sequence.tolist()) == asked_answers(row), task.spell(sequence)


def best_fixed_offset(task, batch_size=1024):
    """The best score of all readers that copy the token so many tokens back, always as many."""
    tokens, targets = first(task, batch_size)
    asked, shares = targets != -100, []
    for back in range(task.n_ctx):
        copied = tokens.roll(back, 1)
        copied[:, :back] = -1  # not what was rolled in from the end
        shares.append((copied == targets)[asked].double().mean().item())
    return max(shares)


def assert_spread(task, distances):
    """Near and far are asked alike: a fifth of the distances or more in each third of n_ctx."""
    counts = Counter(3 * distance // task.n_ctx for distance in distances)
    assert min(counts[third] for third in range(3)) > 0.2 * counts.total(), counts


def distances(task, needed, batch_size=256):
    """How far back what is needed stands: ``needed`` gives position to place for a sequence."""
    return [
        position - place
        for sequence in first(task, batch_size)[0]
        for position, place in needed(task, sequence.tolist()).items()
    ]
