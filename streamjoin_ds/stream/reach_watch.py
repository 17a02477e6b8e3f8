"""The watch over brokers and stores: the driver says at once that one answers no more, and that it answers again.

The planner and the tasks wait for what is away, in processes whose log is Spark's. The driver sends questions of its
own, so that who looks at the terminal, or at the driver's log, need not guess why nothing comes. It goes on with that
while a query is to be started again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from streamjoin_ds.blocks.object_store import answers, store_of
from streamjoin_ds.blocks.place import is_local
from streamjoin_ds.errors import StreamJoinError
from streamjoin_ds.kafka.client import ALL_AWAY, ClientErrors, confluent, made
from streamjoin_ds.logs import Reach
from streamjoin_ds.source.kafka.topic import KafkaUrl
from streamjoin_ds.source.kafka.topic_feed import PATIENCE_SECONDS, stream_url
from streamjoin_ds.spec import Join
from streamjoin_ds.spec.member.stream import Stream

__all__ = ["BrokerWatch", "StoreWatch", "watch_reach"]


_log = logging.getLogger(__name__)

# The longest wait for an answer. Two questions without one are told: one answer may be slow, and a connection that was
# kept may have been closed.
_ANSWER_S = 1.0


class _Watch(Protocol):
    pause_s: float

    def ask(self) -> None:
        """Ask, and say where it changes whether there is an answer."""


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

    pause_s = 0.5  # between two questions

    def __init__(self, url: KafkaUrl, streams: Sequence[str], say: Callable[[str], None]) -> None:
        self._errors = ClientErrors()
        settings = url.settings.read().of_client(url.servers)
        self._client: Any = made(confluent("confluent_kafka.admin").AdminClient, settings, self._errors)
        self._error_kind = confluent().KafkaException
        self._topic = next(iter(url.topics), None)
        waits = f"the query waits, and ends after {PATIENCE_SECONDS:g} s"
        self._reach = Reach(f"stream{'s' * (len(streams) > 1)} {', '.join(streams)}", say, waits)

    def ask(self) -> None:
        """Ask, and at once again where there is no answer, unless librdkafka knows that no broker is there."""
        self._reach.note(answers=self._answers() or (ALL_AWAY not in self._errors.names and self._answers()))

    def _answers(self) -> bool:
        try:
            self._client.list_topics(self._topic, timeout=_ANSWER_S)
        except self._error_kind:
            self._client.poll(0)  # it hears here what librdkafka knows
            return False
        self._errors.names.clear()
        return True


class StoreWatch:
    """Asks a store again and again, and says where it changes whether it answers.

    Parameters
    ----------
    location : str
        What lies in the store.
    needs : sequence of str
        What of the query lies there: "stream e", "checkpoint".
    say : callable
        Is given a line for people.
    asked : callable
        Whether the store of a location answers within so many seconds.
    """

    pause_s = 1.0  # between two questions; Amazon takes a cent for 25 000

    def __init__(
        self,
        location: str,
        needs: Sequence[str],
        say: Callable[[str], None],
        asked: Callable[[str, float], bool] = answers,
    ) -> None:
        self._location, self._asked = location, asked
        waits = "the query waits, and ends if that lasts"
        self._reach = Reach(", ".join(needs), say, waits, store=store_of(location))

    def ask(self) -> None:
        """Ask, and at once again where there is no answer."""
        self._reach.note(answers=any(self._asked(self._location, _ANSWER_S) for _ in range(2)))


def watch_reach(
    join: Join,
    to: str,
    checkpoint: str,
    is_over: Callable[[], bool],
    wait: Callable[[float], object] | None = None,
) -> list[threading.Thread]:
    """Watch the brokers and stores that a join needs, each in a thread, until its query is over or the process ends.

    What cannot be watched (a setting that only other machines have) is not. No thread outlives the main one for long,
    and the interpreter waits for them: one that came back from Arrow later would abort the process.

    Parameters
    ----------
    join : Join
    to, checkpoint : str
        Where the tables and the checkpoint lie.
    is_over : callable
        Whether the query has ended for good.
    wait : callable, optional
        Waits for so many seconds, or until the main thread ends.
    """
    main = threading.main_thread()
    wait = wait or main.join

    def run(watch: _Watch) -> None:
        with contextlib.suppress(Exception):  # Java may be gone, and the query with it
            while main.is_alive() and not is_over():
                watch.ask()
                wait(watch.pause_s)

    watches = [*_broker_watches(join.streams), *_store_watches(join, to, checkpoint)]
    threads = [threading.Thread(target=run, args=(watch,), name="streamjoin-reach") for watch in watches]
    for thread in threads:
        thread.start()
    return threads


def _broker_watches(streams: Sequence[Stream]) -> list[_Watch]:
    names: dict[tuple[str, object], tuple[KafkaUrl, list[str]]] = {}
    for stream in streams:
        if stream.is_topic:
            url = stream_url(stream)
            names.setdefault((url.servers, url.settings), (url, []))[1].append(stream.name)
    watches: list[_Watch] = []
    for url, of in names.values():
        with contextlib.suppress(StreamJoinError, OSError):
            watches.append(BrokerWatch(url, of, _log.warning))
    return watches


def _store_watches(join: Join, to: str, checkpoint: str) -> list[_Watch]:
    sources = [(f"stream {one.name}", one.location) for one in join.streams if not one.is_topic]
    sources += [(f"table {one.name}", one.location) for one in join.tables]
    stores: dict[str, tuple[str, list[str]]] = {}
    for need, location in (*sources, ("the tables", to), ("the checkpoint", checkpoint)):
        if isinstance(location, str) and "://" in location and not is_local(location):
            stores.setdefault(store_of(location), (location, []))[1].append(need)
    return [StoreWatch(location, needs, _log.warning) for location, needs in stores.values()]
