r"""Long prompts in words for a real tokenizer: needles, variable tracking, common words.

After RULER, Hsieh et al. (2024), arXiv:2404.06654, in words of our own. Each function draws one
prompt from a seed, with as much other text around what matters as the length leaves room for: the
same codes and variables at every length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from random import Random

from rove_lab.arguments import check_index, check_size
from rove_lab.prompts import Prompt, hide_facts, longest_prompt

__all__ = ["common_words_prompt", "needle_prompt", "variable_prompt"]

_PLACES = (
    "airport bakery bank barn bridge brewery castle cathedral cellar chapel cinema clinic "
    "college embassy factory farm foundry gallery garage greenhouse harbour hospital hotel "
    "laboratory library lighthouse mill mine monastery museum observatory office palace pharmacy "
    "prison quarry school stadium theatre warehouse"
).split()
# Without some letters, so that nothing rude is spelt by chance.
_CONSONANTS = "BCDFGHJKLMNPQRSTVWXZ"
_SYLLABLES = [consonant + vowel for consonant in "bdfhjklmnrstvwyz" for vowel in "aeiou"]


def needle_prompt(
    encode: Callable[[str], Sequence[int]],
    n_tokens: int,
    seed: int,
    *,
    n_keys: int = 4,
    n_values: int = 1,
    n_queries: int = 1,
) -> Prompt:
    """Codes of places, hidden among other sentences; the codes of some places are asked.

    Every code stands once in the text, at a depth of its own that is drawn uniformly. The answer
    lists the codes of each place asked about in the order of the text, place by place.

    Args:
        encode: Text to tokens, without special ones: ``lambda text: tokenizer.encode(text,
            add_special_tokens=False)`` of a Hugging Face tokenizer, ``encode`` of tiktoken's.
        n_tokens: Tokens of prompt and answer together, at most; another sentence would be too much.
        seed: Of everything drawn.
        n_keys: Places with codes, up to 40.
        n_values: Codes of each place.
        n_queries: Places asked about.

    Returns:
        The prompt.

    Raises:
        TypeError: If a size is not an integer, or encode does not give integers.
        ValueError: If a size is out of range, the prompt does not fit even without other
            sentences, or the tokenizer joins the answer with the text before it.

    Example:
        >>> needle_prompt(lambda text: list(text.encode()), n_tokens=500, seed=1).answer
        '37519'
    """
    for name, size in {"n_keys": n_keys, "n_values": n_values, "n_queries": n_queries}.items():
        check_size(name, size)
    if not n_queries <= n_keys <= len(_PLACES):
        raise ValueError(
            f"expected n_queries <= n_keys <= {len(_PLACES)}, got {n_queries} and {n_keys}: each "
            "query asks about another place."
        )
    random = Random(check_index("seed", seed))
    keys = random.sample(_PLACES, n_keys)
    whose = keys * n_values
    random.shuffle(whose)
    codes = [str(code) for code in random.sample(range(10_000, 100_000), len(whose))]
    needles = [f"The {key} has the code {code}." for key, code in zip(whose, codes, strict=True)]
    asked = keys[:n_queries]  # the places of a sample stand in random order
    names = " and then of ".join(f"the {key}" for key in asked)
    question = f"Which codes did the text give? In the order of the text, the codes of {names} are:"
    answer = [code for key in asked for one, code in zip(whose, codes, strict=True) if one == key]
    return hide_facts(encode, n_tokens, random, needles, question, " " + ", ".join(answer))


def variable_prompt(
    encode: Callable[[str], Sequence[int]],
    n_tokens: int,
    seed: int,
    *,
    n_chains: int = 2,
    n_hops: int = 3,
) -> Prompt:
    """Assignments hidden among other sentences; all variables that have one value are asked.

    Each chain starts at a number and goes from variable to variable; chains are interleaved, the
    assignments of each in their order. The answer lists the variables of one chain in that order.

    Args:
        encode: Text to tokens, as for :func:`needle_prompt`.
        n_tokens: Tokens of prompt and answer together, at most; another sentence would be too much.
        seed: Of everything drawn.
        n_chains: Chains, each with a number of its own.
        n_hops: Assignments of a chain from one variable to the next.

    Returns:
        The prompt.

    Raises:
        TypeError: If a size is not an integer, or encode does not give integers.
        ValueError: If a size is not positive, the prompt does not fit even without other
            sentences, or the tokenizer joins the answer with the text before it.

    Example:
        >>> variable_prompt(lambda text: list(text.encode()), n_tokens=600, seed=0).answer
        'LTJMP, XNHTQ, JSWRM, DLQXZ'
    """
    links = check_size("n_hops", n_hops) + 1
    random = Random(check_index("seed", seed))
    n = check_size("n_chains", n_chains) * links
    names = list(islice(_new_words(random, _CONSONANTS, 5), n))
    numbers = random.sample(range(10_000, 100_000), n_chains)
    turns = [chain for chain in range(n_chains) for _ in range(links)]
    random.shuffle(turns)
    last: dict[int, str] = {chain: str(number) for chain, number in enumerate(numbers)}
    members: list[list[str]] = [[] for _ in range(n_chains)]
    assignments = []
    for name, chain in zip(names, turns, strict=True):
        assignments.append(f"VAR {name} = {last[chain]}.")
        last[chain] = f"VAR {name}"
        members[chain].append(name)
    question = (
        f"Which variables have the value {numbers[0]}, directly or through another variable? In "
        "the order of the text, they are:"
    )
    answer = " " + ", ".join(members[0])
    return hide_facts(encode, n_tokens, random, assignments, question, answer)


def common_words_prompt(
    encode: Callable[[str], Sequence[int]],
    n_tokens: int,
    seed: int,
    *,
    n_common: int = 3,
    common_times: int = 10,
    other_times: int = 2,
) -> Prompt:
    """A list of words, made up, of which some come more often than all others: those are asked.

    A longer list has more of the other words; the answer names the common ones in the order in
    which they first come.

    Args:
        encode: Text to tokens, as for :func:`needle_prompt`.
        n_tokens: Tokens of prompt and answer together, at most; another word, as many times as the
            others, would be too much.
        seed: Of everything drawn.
        n_common: Common words.
        common_times: How many times each of them comes.
        other_times: How many times each other word comes, fewer.

    Returns:
        The prompt.

    Raises:
        TypeError: If a size is not an integer, or encode does not give integers.
        ValueError: If a size is not positive, common words are not more frequent, the prompt does
            not fit with one other word, or the tokenizer joins the answer with the text before it.

    Example:
        >>> common_words_prompt(lambda text: list(text.encode()), n_tokens=900, seed=0).answer
        'vijumo, janali, wivalo'
    """
    check_size("n_common", n_common)
    if check_size("other_times", other_times) >= check_size("common_times", common_times):
        raise ValueError(
            f"expected other_times < common_times, got {other_times} and {common_times}: common "
            "words come more often."
        )
    start = check_index("seed", seed)

    def build(n_others: int) -> tuple[str, str]:
        random = Random(start)  # the same words in each attempt, and one more
        words = list(islice(_new_words(random, _SYLLABLES, 3), n_common + n_others + 1))
        listed = words[:n_common] * common_times + words[n_common:] * other_times
        random.shuffle(listed)
        answer = sorted(words[:n_common], key=listed.index)
        text = (
            f"Here is a list of words: {', '.join(listed)}. The {n_common} most common words of "
            "the list, in the order in which they first came, are:"
        )
        return text, " " + ", ".join(answer)

    return longest_prompt(encode, n_tokens, build, "the list with one other word")


def _new_words(random: Random, parts: Sequence[str], length: int) -> Iterator[str]:
    """Random words of so many parts, none twice."""
    seen: set[str] = set()
    while len(seen) < len(parts) ** length:
        word = "".join(random.choices(parts, k=length))
        if word not in seen:
            seen.add(word)
            yield word
    raise ValueError(f"expected fewer than {len(seen)} different words: pass a smaller size.")
