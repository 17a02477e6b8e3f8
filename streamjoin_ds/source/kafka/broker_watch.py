"""What a driver says of brokers: that they answer no more, at once, and that they answer again.

The planner waits for brokers that are away, in a process whose log is Spark's. The driver asks them beside it, so that
who looks at the terminal, or at the driver's log, need not guess why nothing comes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.kafka.client import ALL_AWAY, ClientErrors, Reach, confluent, made
from streamjoin_ds.source.kafka.stream_topic import stream_url
from streamjoin_ds.source.kafka.topic_feed import PATIENCE_SECONDS
from streamjoin_ds.source.kafka.url import KafkaUrl
from streamjoin_ds.spec.stream import Stream

__all__ = ["BrokerWatch", "watch_brokers"]

_log = logging.getLogger(__name__)

_EVERY_S = 1.0  # between two questions
_ANSWER_S = 1.0  # the longest wait for an answer
_TOLD_AFTER = 2  # questions in a row that nobody answered: one may be slow, but where librdkafka knows it


class BrokerWatch:
    """Asks brokers again and again, and says where it changes whether they answer.

    Parameters
    ----------
    url : KafkaUrl
        A topic of theirs.
    streams : sequence of str
        The names of the streams that read from them.
    say : callable
        Is given a line for people.
    """

    def __init__(self, url: KafkaUrl, streams: Sequence[str], say: Callable[[str], None]) -> None:
        self._errors = ClientErrors()
        settings = url.settings.read().of_client(url.servers)
        self._client: Any = made(confluent("confluent_kafka.admin").AdminClient, settings, self._errors)
        self._error_kind = confluent().KafkaException
        self._topic = url.topic
        waits = f"the query waits, and ends after {PATIENCE_SECONDS:g} s"
        self._reach = Reach(f"stream{'s' * (len(streams) > 1)} {', '.join(streams)}", say, waits)
        self._unanswered = 0

    def ask(self) -> None:
        """Ask once, and wait for the answer for a second at most."""
        try:
            self._client.list_topics(self._topic, timeout=_ANSWER_S)
            self._unanswered = 0
            self._errors.names.clear()
        except self._error_kind:
            self._unanswered += 1
            self._client.poll(0)  # it hears here what librdkafka knows
        if not self._unanswered or self._unanswered >= _TOLD_AFTER or ALL_AWAY in self._errors.names:
            self._reach.note(answers=not self._unanswered)


def watch_brokers(
    streams: Sequence[Stream],
    is_over: Callable[[], bool],
    wait: Callable[[float], object] = time.sleep,
) -> threading.Thread | None:
    """Watch the brokers of all topics among some streams until the query is over; None where there is no topic.

    A topic that cannot be watched (a setting that only other machines have) is not.
    """
    names: dict[tuple[str, object], tuple[KafkaUrl, list[str]]] = {}
    for stream in streams:
        if stream.is_topic:
            url = stream_url(stream)
            names.setdefault((url.servers, url.settings), (url, []))[1].append(stream.name)
    watches: list[BrokerWatch] = []
    for url, of in names.values():
        with contextlib.suppress(StreamJoinError, OSError):
            watches.append(BrokerWatch(url, of, lambda text: _log.warning("%s", text)))

    def run() -> None:
        with contextlib.suppress(Exception):  # Java may be gone, and the query with it
            while not is_over():
                for watch in watches:
                    watch.ask()
                wait(_EVERY_S)

    if not watches:
        return None
    thread = threading.Thread(target=run, name="streamjoin-brokers", daemon=True)
    thread.start()
    return thread
