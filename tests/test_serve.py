"""`make serve`: the book on this machine, and plain words when it cannot be served."""

import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "serve.py"


def start(port, **how):
    command = [sys.executable, str(TOOL), str(port)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how
    )


def test_it_says_where_the_book_is_and_serves_it():
    server = start(0)
    try:
        place = server.stdout.readline().split()[4]
        assert place.startswith("http://127.0.0.1:")
        with pytest.raises(OSError, match="404"):  # it answers, with or without a book
            urlopen(f"{place}no-such-page.html")
    finally:
        server.terminate()
        server.communicate()


def test_a_busy_port_is_named_without_a_traceback():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        _, words = start(taken.getsockname()[1]).communicate()
    assert "in use" in words
    assert "make serve PORT=8001" in words
    assert "Traceback" not in words


@pytest.mark.parametrize("port", ["", "http", "-1", "70000"])
def test_a_port_that_is_none_is_refused(port):
    server = start(port)
    _, words = server.communicate()
    assert server.returncode == 1
    assert words == "make serve: expected a port from 0 to 65535, as in: make serve PORT=8001\n"
