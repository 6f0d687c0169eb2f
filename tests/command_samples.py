"""What the tests of the commands share: a small text, small sizes, a command as it is typed."""

from rove_lab.command_line import run

SIZES = "--n-ctx 16 --d-model 16 --n-layers 1 --n-heads 2".split()
QUICK = "--steps 4 --batch-size 4 --log-every 2 --warmup-steps 1".split()


def write_texts(folder, documents=40):
    """Documents of lines of code; some of them are held out."""
    folder.mkdir(parents=True)
    lines = ["def f(x):\n", "    return x\n", "import os\n", "class A:\n", "    pass\n"]
    for number in range(documents):
        text = "".join(lines[(number * row + row // 3) % 5] for row in range(60))
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    return folder


def status(command, *arguments, text=None, sizes=True):
    """Type a command; its exit status."""
    small = [*SIZES, *QUICK] if sizes else []
    of_text = [] if text is None else ["--text", str(text)]
    return run([command, *small, *of_text, *map(str, arguments)])
