"""A schema registry on loopback, which answers as a test says."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message

__all__ = ["Answer", "registry"]

# Of a path and the request's headers: the status, and the body as JSON values.
Answer = Callable[[str, Message], tuple[int, dict[str, object]]]


@contextmanager
def registry(answer: Answer) -> Iterator[str]:
    """Serve answers while the context lasts; give the registry's URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, facts = answer(self.path, self.headers)
            body = json.dumps(facts).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
