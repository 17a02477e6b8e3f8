"""``streamjoin watch``: the page and the metrics of a join, beside a query that runs elsewhere, or has run."""

from __future__ import annotations

import signal
import threading

import click

from streamjoin_ds.checkpoint.location import checkpoint_place
from streamjoin_ds.cli.join_options import flags
from streamjoin_ds.watch.address import PAGE_ADDRESS
from streamjoin_ds.watch.watcher import WatchOrder, watch_until

__all__ = ["command"]


@click.command("watch")
@click.argument("checkpoint", metavar="CHECKPOINT")
@flags("page", "metrics", "otlp")
@click.option("--open", "is_opened", is_flag=True, help="Open the page in a browser.")
def command(checkpoint: str, page: str | None, metrics: str | None, otlp: bool, is_opened: bool) -> None:
    """Show the join of a CHECKPOINT until Ctrl-C: on a page, and to who asks for its metrics.

    It reads what the checkpoint and the join's tables hold, and changes nothing. The query may run on another machine,
    be started again meanwhile, or begin only later. Without an option there is a page at 127.0.0.1:8765.
    """
    if not (page or metrics or otlp):
        page = PAGE_ADDRESS
    checkpoint_place(checkpoint)  # it is refused where it can be none
    order = WatchOrder(checkpoint, page, metrics, otlp)
    order.check()
    listeners = order.listeners()
    for name, listener in listeners.items():
        click.echo(listener.told(name), err=True)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    if is_opened and "page" in listeners:
        click.launch(listeners["page"].url())
    watch_until(order, listeners, stopped.wait, grace_s=0.0)
