r"""The claims as a list: text where it is printed; in a notebook, one that filters by verdict."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Self, final

from rove_lab.claims import VERDICTS, Claim, Part, claims
from rove_lab.notebook import where

__all__ = ["ClaimList"]

# Radio buttons and :has() do it, so that a page filters without a script. The book's own styles
# are not there in Jupyter and Colab; these few are.
_STYLE = """
.rove-claims fieldset { border: 1px solid; border-radius: 6px; padding: 0.4rem 0.8rem; }
.rove-claims legend { float: none; width: auto; font-size: 1em; margin: 0; padding: 0 0.4rem; }
.rove-claims label { display: inline-block; margin: 0.15rem 1rem 0.15rem 0; cursor: pointer; }
.rove-claims ul { list-style: none; padding: 0; margin: 0.5rem 0; }
.rove-claims li { padding: 0.6rem 0; border-bottom: 1px solid rgba(128, 128, 128, 0.5); }
.rove-claims p { margin: 0.2rem 0; text-align: left; }
.rove-claims details { margin: 0.2rem 0; }
.rove-claims code { overflow-wrap: anywhere; white-space: normal; }
"""
_MARKS = dict(zip(VERDICTS, "=✓–✗?", strict=True))


@final
class ClaimList(str):
    """The claims, each with its verdicts, what was seen, and where; to read and to filter.

    Args:
        entries: The claims; None is all of them.

    Example:
        >>> print(ClaimList(claims()[:1]))
        C1 RoPE makes attention scores depend only on the offset
           = shown exactly: The two rotations ...
    """

    _claims: tuple[Claim, ...]

    def __new__(cls, entries: Sequence[Claim] | None = None) -> Self:
        """Lay them out as text, and keep them for a notebook."""
        chosen = claims() if entries is None else tuple(entries)
        lines = []
        for claim in chosen:
            lines.append(f"{claim.name} {claim.words}")
            lines += [f"   {_verdict(part)}: {part.seen}" for part in claim.parts]
        written = super().__new__(cls, "\n".join(lines))
        written._claims = chosen
        return written

    def __reduce__(self) -> tuple[type[ClaimList], tuple[object]]:
        return ClaimList, (self._claims,)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        held = [{part.verdict for part in claim.parts} for claim in self._claims]
        style, buttons = _STYLE, [_button("every verdict", len(held), checked=True)]
        for verdict in VERDICTS:
            buttons.append(_button(verdict, sum(verdict in one for one in held)))
            name = _name(verdict)
            style += f".rove-claims:has(input[value={name}]:checked) li:not(.{name})"
            style += " { display: none; }\n"
        items = []
        for claim, verdicts in zip(self._claims, held, strict=True):
            named = " ".join(sorted(map(_name, verdicts)))
            parts = "".join(map(_part, claim.parts))
            words = f"<p><strong>{claim.name}</strong> {escape(claim.words)}</p>"
            items.append(f'<li class="{named}">{words}{parts}</li>')
        return (
            f'<div class="rove-claims"><style>{style}</style><fieldset><legend>Show</legend>'
            f"{''.join(buttons)}</fieldset><ul>{''.join(items)}</ul></div>"
        )


def _verdict(part: Part) -> str:
    return f"{_MARKS[part.verdict]} {part.of + ', ' if part.of else ''}{part.verdict}"


def _name(verdict: str) -> str:
    """A verdict as the name of a class."""
    return verdict.replace(" ", "-")


def _button(verdict: str, count: int, *, checked: bool = False) -> str:
    mark = f"{_MARKS[verdict]} " if verdict in _MARKS else ""
    return (
        f'<label><input type="radio" name="rove-verdict" value="{_name(verdict)}"'
        f"{' checked' if checked else ''}> {mark}{verdict} ({count})</label>"
    )


def _part(part: Part) -> str:
    """The verdict, what was seen, and what it rests on: links where there are pages to go to."""
    pages = {"book": f"{part.chapter}.html#{part.anchor}", "jupyter": f"{part.chapter}.ipynb"}
    address = pages.get(where())
    at = f'<a href="{address}">{part.place}</a>' if address else part.place
    records = [f"record <code>{slug}</code>" for slug in part.slugs]
    rests = f"<small>({', '.join([at, *records])})</small>"
    said = f"<p><strong>{_verdict(part)}.</strong> {escape(part.seen)} {rests}</p>"
    if not part.tests:
        return said
    tests = "".join(f"<br><code>{escape(test)}</code>" for test in part.tests)
    count = f"{len(part.tests)} test{'s' * (len(part.tests) > 1)}"
    return f"{said}<details><summary>{count}</summary><small>{tests[4:]}</small></details>"
