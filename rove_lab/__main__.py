"""``python -m rove_lab``: the command line."""

import sys
from io import TextIOWrapper

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit status.

    Example:
        >>> main.__module__
        'rove_lab.__main__'
    """
    try:
        from rove_lab.command_line import run
    except ImportError as error:  # it names the extra to install
        sys.exit(str(error))
    except KeyboardInterrupt:  # imports take seconds
        sys.exit(130)
    for stream in (sys.stdout, sys.stderr):  # a file on Windows has no sign for − or �
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
