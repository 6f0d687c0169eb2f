"""Serve the built book on this machine until Ctrl-C.

Usage, by `make serve`: `python tools/serve.py PORT`. It needs the standard library alone.
"""

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BOOK = Path(__file__).resolve().parent.parent / "_build" / "html"


def serve(port: int, folder: Path = BOOK) -> None:
    """Serve `folder` to this machine alone.

    Raises:
        OSError: If the port is taken, or not ours to open.
    """
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        place = f"http://127.0.0.1:{server.server_port}/"
        print(f"The book is at {place} (Ctrl-C ends it)", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdecimal() or int(sys.argv[1]) > 65_535:
        sys.exit("make serve: expected a port from 0 to 65535, as in: make serve PORT=8001")
    try:
        serve(int(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(0)
    except OSError as error:
        sys.exit(
            f"make serve: port {sys.argv[1]}: {error.strerror}. Take another: make serve PORT=8001"
        )
