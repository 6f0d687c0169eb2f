r"""What few-shot scores are held against: their standard error, and a reader who learns no rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rove_lab.arguments import check_size
from rove_lab.few_shot import centred_accuracy, suite_score
from rove_lab.few_shot_tasks import SUITE, FewShotTask, Question

__all__ = ["label_shortcut_scores", "suite_error"]


def label_shortcut_scores(
    k_shots: Sequence[int],
    *,
    tasks: Sequence[FewShotTask] = SUITE,
    n_questions: int = 128,
    seed: int = 0,
) -> dict[str, dict[int, float]]:
    r"""What :func:`rove_lab.few_shot.few_shot_scores` gives to who says the most frequent label.

    Such a reader does not read the question, and learns no rule from the examples; labels that are
    equally frequent share the point. Up to its score a model may do the same. Min et al. (2022),
    arXiv:2202.12837, ask what examples show beside their labels.

    Args:
        k_shots: Numbers of examples, 0 or more.
        tasks: What to ask; their names differ.
        n_questions: For each task and k; with the same seed these are the very questions.
        seed: Of the questions.

    Returns:
        The task's name to k to centred accuracy :math:`(a - c) / (1 - c)`; 0 at k = 0.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If a number is out of range, or two tasks have one name.

    Example:
        >>> label_shortcut_scores([0, 4])["copying"]
        {0: 0.0, 4: 0.43...}
    """
    _check_names(tasks)
    found: dict[str, dict[int, float]] = {}
    for task in tasks:
        shares = {k: _share_right(task.questions(n_questions, k, seed)) for k in k_shots}
        found[task.name] = {k: centred_accuracy(a, task.chance) for k, a in shares.items()}
    return found


def _check_names(tasks: Sequence[FewShotTask]) -> None:
    names = [task.name for task in tasks]
    if len({*names}) != len(names):
        raise ValueError(
            f"expected tasks with a name each, got {names}: give tasks of one kind to calls of "
            "their own."
        )


def _share_right(questions: Sequence[Question]) -> float:
    right = 0.0
    for question in questions:
        counts = [question.prompt.count(f":{choice}\n") for choice in question.choices]
        best = [i for i, count in enumerate(counts) if count == max(counts)]
        right += (question.answer in best) / len(best)
    return right / len(questions)


def suite_error(
    scores: Mapping[str, Mapping[int, float]],
    n_questions: int,
    tasks: Sequence[FewShotTask] = SUITE,
) -> dict[int, float]:
    r"""The standard error of the suite's score at each k, over the questions that might be asked.

    :math:`\frac{1}{T} \sqrt{\sum_t a_t (1 - a_t) / (n (1 - c_t)^2)}` for T tasks with accuracy a,
    chance c and n questions each. How another training would have come out is not in it; and a
    difference between models that were asked the same questions is surer than two such errors say.

    Args:
        scores: From :func:`rove_lab.few_shot.few_shot_scores`.
        n_questions: As they were made with.
        tasks: As they were made with.

    Returns:
        k to standard error.

    Raises:
        TypeError: If ``n_questions`` is not an integer.
        ValueError: If it is not positive, the tasks are others or two of one name, not every task
            has every k, or a score is none of an accuracy.

    Example:
        >>> scores = {task.name: {4: 0.0} for task in SUITE}
        >>> suite_error(scores, n_questions=256)
        {4: 0.02...}
    """
    check_size("n_questions", n_questions)
    _check_names(tasks)
    chances = {task.name: task.chance for task in tasks}
    if chances.keys() != scores.keys():
        raise ValueError(
            f"expected scores of the tasks {[*chances]}, got {[*scores]}: pass the tasks that were "
            "scored."
        )
    variances = {}
    for name, of_task in scores.items():
        left = 1 - chances[name]
        right = {k: chances[name] + centred * left for k, centred in of_task.items()}
        if odd := [k for k, a in right.items() if not -1e-9 <= a <= 1 + 1e-9]:
            raise ValueError(
                f"expected centred scores of {name}, shares of 1 at most, got "
                f"{of_task[odd[0]]} at k = {odd[0]}: few_shot_scores gives them."
            )
        variances[name] = {
            k: max(a * (1 - a), 0.0) / (n_questions * left**2) for k, a in right.items()
        }
    return {k: (mean / len(scores)) ** 0.5 for k, mean in suite_score(variances).items()}
