"""Variable tracking, run as a program: each assignment in turn."""

from collections import Counter

import pytest
from token_tasks import asked_answers, assert_solved, assert_spread, first, kind

from rove_lab.variable_tracking import VariableTracking

SIZES = [
    VariableTracking(),
    VariableTracking(n_symbols=4, n_ctx=17, n_chains=2, n_hops=1, n_queries=2),
    VariableTracking(n_symbols=20, n_ctx=100, n_chains=4, n_hops=4, n_queries=2),
    VariableTracking(n_ctx=512, n_chains=3, n_queries=3),
]


def assignments(task, sequence):
    """Place, variable and what it is assigned, from left to right."""
    equals = [t for t, token in enumerate(sequence) if token == task.question + 1]
    return [(t - 1, sequence[t - 1], sequence[t + 1]) for t in equals]


def run(task, sequence):
    """Variable to its value, its number of hops, and the place of the first assignment."""
    memory = {}
    for place, variable, assigned in assignments(task, sequence):
        assert kind(task, variable) == "key"
        assert variable not in memory
        if kind(task, assigned) == "value":
            memory[variable] = assigned, 0, place
        else:
            value, hops, start = memory[assigned]  # assigned before it is used
            memory[variable] = value, hops + 1, start
    assert Counter(hops for _, hops, _ in memory.values()) == dict.fromkeys(
        range(task.n_hops + 1), task.n_chains
    )
    return memory


def asked_variables(task, sequence):
    """Position of each asked variable to the variable."""
    return {t + 1: sequence[t + 1] for t, token in enumerate(sequence) if token == task.question}


def reader(task, sequence):
    """The value that the variable has in the end."""
    memory = run(task, sequence)
    return {t: memory[name][0] for t, name in asked_variables(task, sequence).items()}


def chain_starts(task, sequence):
    """Position of each asked variable to the assignment with its value."""
    memory = run(task, sequence)
    return {t: memory[name][2] for t, name in asked_variables(task, sequence).items()}


@pytest.mark.parametrize("task", SIZES, ids=repr)
def test_the_answer_is_the_value_that_the_program_gives(task):
    assert_solved(task, reader)


@pytest.mark.parametrize("task", SIZES, ids=repr)
def test_what_is_asked_is_all_hops_away_and_another_chain_each(task):
    for sequence in first(task)[0].tolist():
        memory = run(task, sequence)
        asked = asked_variables(task, sequence).values()
        assert {memory[name][1] for name in asked} == {task.n_hops}
        assert len({memory[name][2] for name in asked}) == len(asked) == task.n_queries


def test_chains_are_interleaved_at_random():
    """The first assignment that has a value last in the text is of any chain asked about."""
    task, ranks = VariableTracking(), [0] * 4
    for sequence in first(task, 2048)[0].tolist():
        starts = [
            place for place, _, got in assignments(task, sequence) if kind(task, got) == "value"
        ]
        (start,) = chain_starts(task, sequence).values()
        ranks[starts.index(start)] += 1
    assert min(ranks) > 0.8 * 2048 / 4


def test_the_last_value_of_the_text_is_no_answer():
    task, hits, n = VariableTracking(), 0, 0
    for sequence, row in zip(*first(task, 256), strict=True):
        values = [token for token in sequence.tolist() if kind(task, token) == "value"]
        answers = list(asked_answers(row).values())
        hits += answers.count(values[3])
        n += len(answers)
    assert hits / n < 0.4


def test_near_and_far_are_asked_alike():
    """The assignments of the asked chains, all of which the answer needs."""
    task = VariableTracking(n_ctx=512, n_hops=1)
    back = [
        t - places[link]
        for sequence in first(task, 256)[0].tolist()
        for places in [{name: place for place, name, _ in assignments(task, sequence)}]
        for t, name in asked_variables(task, sequence).items()
        for link in chain(task, sequence, name)
    ]
    assert_spread(task, back)


def chain(task, sequence, name):
    """A variable and those it comes from."""
    sources = {variable: assigned for _, variable, assigned in assignments(task, sequence)}
    while kind(task, name) == "key":
        yield name
        name = sources[name]


@pytest.mark.parametrize(
    ("sizes", "error", "words"),
    [
        ({"n_hops": 0}, ValueError, "expected n_hops to be positive, got 0"),
        ({"n_chains": 2.0}, TypeError, "expected n_chains to be an integer"),
        ({"n_queries": 0}, ValueError, "expected n_queries to be positive, got 0"),
        ({"n_queries": 5}, ValueError, "expected at most n_chains=4 queries, got 5"),
        ({"n_hops": 4}, ValueError, "n_symbols of 20 or more for 20 distinct variables, got 16"),
        (
            {"n_ctx": 37},
            ValueError,
            "n_ctx of 38 or more for 12 assignments and 1 questions, got 37",
        ),
    ],
)
def test_bad_sizes_are_refused(sizes, error, words):
    with pytest.raises(error, match=words):
        VariableTracking(**sizes)
