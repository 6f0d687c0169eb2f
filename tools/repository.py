"""Point the project at another GitHub repository.

Usage: `make repository URL=https://github.com/owner/name`. The address stands in the package
metadata, the book's settings, the citation file, the prose and the first cell of each notebook;
everything else in those files stays as it is, byte for byte. It needs the standard library alone.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("pyproject.toml", "_config.yml", "CITATION.cff", "*.md", "book/*.md", "book/*.ipynb")
ADDRESS = re.compile(
    r"https://github\.com/([A-Za-z0-9](?:-?[A-Za-z0-9]){0,38})/([A-Za-z0-9._-]{1,100})"
)


def owner_and_name(url: str) -> str:
    """The `owner/name` of a repository's address.

    Raises:
        ValueError: If the address is not of the form `https://github.com/owner/name`.
    """
    match = ADDRESS.fullmatch(url)
    if not match or match[2] in {".", ".."} or match[2].endswith(".git"):
        raise ValueError(
            f"expected https://github.com/owner/name, got {url!r}: give the address as a browser "
            "shows it, without a closing slash, '.git' or anything after the name"
        )
    return f"{match[1]}/{match[2]}"


def current(root: Path = ROOT) -> str:
    """The address the project has now, as `pyproject.toml` states it."""
    metadata = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return str(metadata["project"]["urls"]["Repository"])


def rewrite(url: str, root: Path = ROOT) -> list[Path]:
    """Put `url` wherever the project's present address stands, and return the files that changed.

    Colab's links, which name a repository as `github/owner/name`, and clone addresses move too; a
    longer name that only begins with ours does not.

    Raises:
        ValueError: If `url` is not of the form `https://github.com/owner/name`.
    """
    new = owner_and_name(url)
    old = owner_and_name(current(root))
    mention = re.compile(
        rf"(?<![\w.-])(github(?:\.com)?[/:]){re.escape(old)}(?![\w-])(?!\.(?!git\b)\w)".encode()
    )
    changed = []
    for path in sorted({path for place in PLACES for path in root.glob(place)}):
        before = path.read_bytes()
        after = mention.sub(lambda found: found[1] + new.encode(), before)
        if after != before:
            path.write_bytes(after)
            changed.append(path)
    return changed


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1]:
        sys.exit("usage: make repository URL=https://github.com/owner/name")
    try:
        for path in rewrite(sys.argv[1]):
            print(f"rewrote {path.relative_to(ROOT)}")
    except ValueError as error:
        sys.exit(f"make repository: {error}")
    print(f"the project's address is {current()}")
