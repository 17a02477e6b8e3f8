"""The process that watches a join: what it is told, how it runs, and who starts and ends it.

::

    Watcher (in the query's process)                     python -m streamjoin_ds.watch.watcher
      opens the sockets, so that a refusal comes first ──► inherits them
      writes `WatchOrder` to its standard input        ──► page, Prometheus, OpenTelemetry
      closes that, or dies                             ──► shows for a moment that the query has ended; ends

It costs the query its own CPU time, which is little and of low priority, and none of the query's threads.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from msgspec import Struct, field

from streamjoin_ds.watch.address import Address, Listener

__all__ = ["WatchOrder", "Watcher", "watch_until", "watching"]

_NICENESS = 10
_GRACE_S = 6.0  # how long it is waited at most until pages that are open were told that their query has ended
_STOP_S = 2.0  # how long the page's server has to end
_PAUSE_S = 0.5  # between two looks whether a query has ended
_FRAME = '<iframe src="{url}" width="100%" height="760" style="border:0"></iframe><p><a href="{url}">{url}</a></p>'


class WatchOrder(Struct, frozen=True):
    """What is to be watched, and for whom.

    Parameters
    ----------
    checkpoint : str
        The join's checkpoint, which need not be there yet.
    page, metrics : str or None
        Where the page and the endpoint for Prometheus listen: ``PORT`` or ``HOST:PORT``; None: there is none.
    otlp : bool
        Whether metrics are sent by OTLP.
    """

    checkpoint: str
    page: str | None = None
    metrics: str | None = None
    otlp: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nobody wants to see anything."""
        return not (self.page or self.metrics or self.otlp)

    def check(self) -> None:
        """Refuse addresses that are none, and what is not installed.

        Raises
        ------
        ArgumentError, DependencyMissingError
        """
        from streamjoin_ds.watch.measures import check_metrics, check_otlp
        from streamjoin_ds.watch.page_server import check_page

        for name, text, check in (("page", self.page, check_page), ("metrics", self.metrics, check_metrics)):
            if text is not None:
                Address.parse(text, name)
                check()
        if self.otlp:
            check_otlp()

    def listeners(self) -> dict[str, Listener]:
        """Return the sockets of the page and of the endpoint, where they are asked for.

        Raises
        ------
        ArgumentError
            An address is in use, or none of this machine.
        """
        found: dict[str, Listener] = {}
        for name, text in (("page", self.page), ("metrics", self.metrics)):
            if text is not None:
                found[name] = Listener.at(Address.parse(text, name), name, has_token=name == "page")
        return found


class Watcher:
    """The other process; a context manager that ends it.

    In a notebook it shows the page.

    Parameters
    ----------
    order : WatchOrder

    Raises
    ------
    ArgumentError
        An address is none, is in use, or is none of this machine.
    DependencyMissingError
        What it needs is not installed.
    """

    def __init__(self, order: WatchOrder) -> None:
        order.check()
        self._listeners = order.listeners()
        told = {
            "checkpoint": order.checkpoint,
            "otlp": order.otlp,
            **{
                name: {
                    "fd": one.socket.fileno(),
                    "host": one.address.host,
                    "port": one.address.port,
                    "token": one.token,
                }
                for name, one in self._listeners.items()
            },
        }
        command = [sys.executable, "-m", "streamjoin_ds.watch.watcher"]
        descriptors = [one.socket.fileno() for one in self._listeners.values()]
        # A session of its own: Ctrl-C is for the query, whose end this process shows.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=descriptors, start_new_session=True
        )
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        self._process.stdin.flush()
        for one in self._listeners.values():
            one.close()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def url(self) -> str | None:
        """Where the page is, with its token; None where there is no page."""
        return self._listeners["page"].url() if "page" in self._listeners else None

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus finds the metrics; None where there is no endpoint."""
        return self._listeners["metrics"].url("/metrics") if "metrics" in self._listeners else None

    @property
    def process_id(self) -> int:
        """The id of the other process."""
        return self._process.pid

    def close(self) -> None:
        """Let the other process end; return at once."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            # It is waited for, so that no zombie is left.
            threading.Thread(target=self._process.wait, name="streamjoin-watch-end", daemon=True).start()

    def tell(self) -> None:
        """Print on standard error where the page and the metrics are."""
        for name, listener in self._listeners.items():
            print(listener.told(name), file=sys.stderr, flush=True)

    def __repr__(self) -> str:
        return f"<Watcher {self.url or self.metrics_url or 'otlp'}>"

    def _repr_html_(self) -> str:
        return _FRAME.format(url=escape(self.url or "", quote=True))


@contextlib.contextmanager
def watching(order: WatchOrder) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """Watch a query that is begun meanwhile, if that is asked for; print on standard error where.

    Yields
    ------
    callable
        Is given what says whether the query is over for good. Until then it is watched; where the query does not begin,
        no longer.

    Raises
    ------
    ArgumentError, DependencyMissingError
        As `Watcher`.
    """
    if order.is_empty:
        yield lambda is_over: None
        return
    watcher = Watcher(order)
    watcher.tell()
    try:
        yield lambda is_over: _close_after(watcher, is_over)
    except BaseException:
        watcher.close()
        raise


def _close_after(watcher: Watcher, is_over: Callable[[], bool]) -> None:
    main = threading.main_thread()

    def run() -> None:
        with contextlib.suppress(Exception), watcher:  # Java may be gone, and the query with it
            while main.is_alive() and not is_over():
                main.join(_PAUSE_S)

    threading.Thread(target=run, name="streamjoin-watch").start()


class _WithoutPandas:
    """Hides pandas, which Arrow loads where it is installed, to ask whether values are of it: that takes long."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse to find pandas; let others find anything else."""
        if name == "pandas":
            msg = f"No module named {name!r}"
            raise ModuleNotFoundError(msg, name=name)


class _Watching(Struct):
    """What the process runs until it is to end."""

    ends: list[Callable[[], None]] = field(default_factory=list)

    def begin(self, order: WatchOrder, listeners: dict[str, Listener]) -> Any:
        """Begin to serve; return the watched join."""
        if "pandas" not in sys.modules:
            sys.meta_path.insert(0, _WithoutPandas())
        from streamjoin_ds.watch.measures import export_otlp, serve_metrics
        from streamjoin_ds.watch.page_server import page_server
        from streamjoin_ds.watch.watched_join import WatchedJoin

        join = WatchedJoin(order.checkpoint)
        if "page" in listeners:
            serve, end = page_server(join, listeners["page"])
            server = threading.Thread(target=serve, name="streamjoin-page", daemon=True)
            server.start()
            self.ends += [lambda: server.join(_STOP_S), end]
        if "metrics" in listeners:
            self.ends.append(serve_metrics(join, listeners["metrics"]))
        if order.otlp:
            self.ends.append(export_otlp(join))
        threading.Thread(target=join.poll, daemon=True).start()  # so that a page finds the history read
        return join

    def end(self) -> None:
        """End all of it."""
        for end in reversed(self.ends):
            end()


def watch_until(order: WatchOrder, listeners: dict[str, Listener], wait: Callable[[], object], grace_s: float) -> None:
    """Serve what is asked for until `wait` returns, and until pages say that it is over: for `grace_s` at most."""
    watching = _Watching()
    join = watching.begin(order, listeners)
    wait()
    join.end(grace_s)
    watching.end()


def main() -> None:
    """Run the process: read the order from standard input, and serve until that ends."""
    import socket

    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    told = json.loads(sys.stdin.readline())
    listeners = {
        name: Listener(socket.socket(fileno=one["fd"]), Address(one["host"], one["port"]), one["token"])
        for name, one in told.items()
        if name in ("page", "metrics")
    }
    order = WatchOrder(told["checkpoint"], otlp=told["otlp"])
    watch_until(order, listeners, sys.stdin.read, _GRACE_S if "page" in listeners else 0.0)


if __name__ == "__main__":
    main()
