r"""Settings of a budget that a command line changes: ``training.steps=4``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

__all__ = ["changed"]

_Budget = TypeVar("_Budget")


def changed(budget: _Budget, settings: Sequence[str]) -> _Budget:
    """A budget with some of its settings set otherwise.

    Args:
        budget: Dataclasses and mappings, one in another, down to numbers, words and tuples; it
            stays as it is.
        settings: Each ``where=value``: the names on the way down, with dots between them, and the
            value as JSON writes it.

    Returns:
        The budget as it is then; each dataclass on the way checks its fields anew.

    Raises:
        ValueError: If a setting has no value, a name is none of those there, or the value is of
            another kind.

    Example:
        >>> changed({"rate": 1e-3, "row 1": {"planes": (0, 1)}}, ["row 1.planes=[5]"])
        {'rate': 0.001, 'row 1': {'planes': (5,)}}
    """
    for setting in settings:
        where, equals, value = setting.partition("=")
        try:
            found = json.loads(value)
        except json.JSONDecodeError:
            equals = ""
        if not equals:
            raise ValueError(
                f"expected a setting and its value, such as training.steps=4, got {setting!r}."
            )
        budget = _set(budget, where.split("."), found, setting)
    return budget


def _set(thing: Any, names: Sequence[str], value: Any, setting: str) -> Any:
    if not names:
        return _like(thing, value, setting)
    inside = _inside(thing)
    if names[0] not in inside:
        raise ValueError(
            f"expected a name among {', '.join(inside) or 'none'}, got {names[0]!r} in {setting!r}."
        )
    key, old = inside[names[0]]
    new = _set(old, names[1:], value, setting)
    return {**thing, key: new} if isinstance(thing, dict) else replace(thing, **{key: new})


def _inside(thing: Any) -> dict[str, tuple[Any, Any]]:
    """Of what has names inside: each as a word, as it is, and what it names."""
    if isinstance(thing, dict):
        return {str(key): (key, value) for key, value in thing.items()}
    if is_dataclass(thing):
        fields = thing.__dataclass_fields__.values()
        return {
            field.name: (field.name, getattr(thing, field.name)) for field in fields if field.init
        }
    return {}


def _like(old: Any, value: Any, setting: str) -> Any:
    """The value, if it may stand where the old one stood."""
    if isinstance(old, tuple) and isinstance(value, list):
        return tuple(value)
    if isinstance(old, float) and type(value) is int:
        return float(value)
    if _inside(old) or not (old is None or type(value) is type(old)):
        raise ValueError(
            f"expected a value like {old!r}, got {value!r} in {setting!r}: name a setting further "
            "inside, or give another value."
        )
    return value
