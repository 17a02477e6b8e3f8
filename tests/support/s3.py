"""An S3 for tests: moto's server in a process of its own, behind a line that can be cut."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import selectors
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import fs

from streamjoin_ds.blocks import files, object_store

__all__ = ["BUCKET", "KEY", "S3", "SECRET", "Line", "forget", "needs_s3", "served"]

BUCKET = "bucket"
KEY, SECRET = "AKIDtesting", "sEcReT/of+nobody"
_HOST, _START_TRIES = "127.0.0.1", 1200  # so many tries and not seconds: a machine may stand still for a while

_NO_ANSWER = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

needs_s3 = pytest.mark.skipif(
    importlib.util.find_spec("moto") is None
    or importlib.util.find_spec("flask") is None
    or not hasattr(fs, "S3FileSystem"),
    reason="no S3 to test against: pip install 'streamjoin-ds[s3-test]' (moto's server), and a PyArrow with S3",
)


class Line:
    """A port between clients and the server that passes bytes on until the line is cut.

    Attributes
    ----------
    port : int
    left_bytes : int or None
        So many more bytes go to the server before each connection breaks. None: there is no limit; 0: the line is cut.
    lost : list of bytes
        For each item the answer to one request is lost that begins with PUT and has these bytes in its first line: the
        server has done it, and the client is told 500.
    """

    def __init__(self, server_port: int) -> None:
        line = self

        class Pass(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                if line.left_bytes != 0:
                    with contextlib.suppress(OSError), socket.create_connection((_HOST, server_port)) as server:
                        line._pass(self.request, server)

        self.left_bytes: int | None = None
        self.lost: list[bytes] = []
        self._server = socketserver.ThreadingTCPServer((_HOST, 0), Pass)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            loses = False
            while True:
                for key, _ in ready.select():
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if not data or self.left_bytes == 0:
                        return
                    first_line = data.partition(b"\r\n")[0]
                    if key.fileobj is client and first_line.startswith(b"PUT ") and self.lost:
                        loses = self.lost[0] in first_line
                        self.lost = self.lost[loses:]
                    if key.fileobj is server and loses and not data.startswith(b"HTTP/1.1 100"):
                        client.sendall(_NO_ANSWER)
                        return
                    if key.fileobj is client and self.left_bytes is not None:
                        data = data[: self.left_bytes]
                        self.left_bytes -= len(data)
                    key.data.sendall(data)
                    if self.left_bytes == 0:
                        return


@dataclass
class S3:
    """A running server and the line to it."""

    line: Line
    log: Path

    def uri(self, path: str, *, key: str = KEY, secret: str = SECRET) -> str:
        """Return the URI of a folder in the bucket, as a user would write it."""
        place = f"{key}:{secret.replace('/', '%2F').replace('+', '%2B')}@{BUCKET}/{path}"
        return f"s3://{place}?scheme=http&region=us-east-1&endpoint_override={_HOST}:{self.line.port}"

    def files(self) -> fs.S3FileSystem:
        """Return a file system to look at what is there and to spoil it; it gives up at the first error."""
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region="us-east-1",
            scheme="http",
            endpoint_override=f"{_HOST}:{self.line.port}",
            allow_bucket_creation=True,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
            request_timeout=60,  # on a busy machine the server takes more than Arrow's 3 s for its first answer
        )

    def environment(self) -> dict[str, str]:
        """Return the variables by which a user names the server and the credentials."""
        return {
            "AWS_ENDPOINT_URL": f"http://{_HOST}:{self.line.port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",  # nobody is asked for credentials but this environment
        }

    def put(self, key: str, data: bytes) -> None:
        """Put an object as it is: by its name Arrow would compress it."""
        with self.files().open_output_stream(f"{BUCKET}/{key}", compression=None) as file:
            file.write(data)

    def put_folder(self, folder: Path, key: str) -> None:
        """Put all files of a folder under a key."""
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            self.put(f"{key}/{path.relative_to(folder)}", path.read_bytes())

    def remove(self, key: str) -> None:
        """Remove an object."""
        self.files().delete_file(f"{BUCKET}/{key}")

    def requests(self) -> list[str]:
        """Return method and path of each request so far."""
        lines = self.log.read_text(errors="replace").splitlines()
        texts = [line.split('"')[1] for line in lines if " HTTP/1." in line]
        return [
            text[max(text.find(m) for m in ("GET", "PUT", "POST", "HEAD", "DELETE")) :].rsplit(" ", 1)[0]
            for text in texts
        ]


def forget() -> None:
    """Forget what this process has opened, as another process would know nothing of it."""
    files._remote_files.cache_clear()
    object_store._opened.cache_clear()


@contextlib.contextmanager
def served(folder: Path, *, checks_credentials: bool = False) -> Iterator[S3]:
    """A server with an empty bucket, for as long as the context lasts.

    Parameters
    ----------
    folder : Path
        The folder of its log.
    checks_credentials : bool
        Whether it refuses every request, as S3 does with a key that it does not know.
    """
    with socket.socket() as free:
        free.bind((_HOST, 0))
        port = free.getsockname()[1]
    log = folder / f"s3-{port}.log"
    environment = os.environ | ({"INITIAL_NO_AUTH_ACTION_COUNT": "0"} if checks_credentials else {})
    command = [sys.executable, "-m", "moto.server", "-H", _HOST, "-p", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=folder)
    line = Line(port)
    try:
        _wait(port, process, log)
        s3 = S3(line, log)
        if not checks_credentials:
            s3.files().create_dir(BUCKET)
        yield s3
    finally:
        line.close()
        process.kill()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(_START_TRIES):
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection((_HOST, port), 1):
            return
        time.sleep(0.05)
    pytest.fail(f"moto's server did not start: {log.read_text(errors='replace')[-500:]}")
