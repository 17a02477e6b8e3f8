"""What the brokers say of a topic: its id and partitions, first and last stable offsets, the offset of a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any

from msgspec import Struct

from streamjoin_ds.errors import KafkaTopicChangedError
from streamjoin_ds.kafka.client import PASSING, ClientErrors, confluent, made
from streamjoin_ds.kafka.settings import Settings

_log = logging.getLogger(__name__)

__all__ = ["ANSWER_SECONDS", "Broker", "TopicFacts", "check_same"]

# How long an answer may take. A broker that is up answers within milliseconds; one that restarts is away for seconds.
ANSWER_SECONDS = 15.0
_LOOK_SECONDS = 0.1  # between looks whether the brokers refuse this client
_TELL_SECONDS = 2.0  # how long a batch waits to tell a group its position
_QUIET_SECONDS = 2.0  # how long nothing is said of brokers who do not answer
_PAUSE_SECONDS = 0.1  # before brokers are asked again, who said that something passes


class TopicFacts(Struct, frozen=True):
    """A topic as it was seen: the id that its maker gave it, and its partitions, ascending.

    The id is empty where the broker is older than ids (Kafka 2.8).
    """

    topic_id: str
    partitions: tuple[int, ...]


def check_same(topic: str, known: TopicFacts, now: TopicFacts) -> None:
    """Refuse a topic that is not the one known from before. More partitions are welcome.

    Raises
    ------
    KafkaTopicChangedError
        It has another id, or lacks a partition.
    """
    if known.topic_id and now.topic_id != known.topic_id:
        msg = f"the topic {topic} was deleted and made again since it was read: it has another id"
        hint = "begin with a new checkpoint and a new table; the old offsets mean nothing in the new topic"
        raise KafkaTopicChangedError(msg, name=topic, hint=hint)
    gone = sorted(set(known.partitions) - set(now.partitions))
    if gone:
        msg = f"the topic {topic} has fewer partitions than before: {', '.join(map(str, gone))} is gone"
        raise KafkaTopicChangedError(msg, name=topic, hint="begin with a new checkpoint and a new table")


class Broker:
    """Asks the brokers, again where they say what passes (`PASSING`). It reads no message.

    Parameters
    ----------
    servers : str
        ``host:port`` of one or more brokers, separated by commas.
    settings : Settings
    answer_seconds : float
        How long an answer may take.
    clock : callable
        Seconds that only grow.
    wait : callable
        Waits so many seconds.
    """

    def __init__(
        self,
        servers: str,
        settings: Settings,
        answer_seconds: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._kafka, self._admin_kind = confluent(), confluent("confluent_kafka.admin")
        self._errors = ClientErrors()
        self._answer_seconds = answer_seconds
        self._untold: set[str] = set()  # groups whose positions the brokers did not take last
        self._clock, self._wait = clock, wait
        self._admin = made(self._admin_kind.AdminClient, settings.of_client(servers), self._errors)

    def topic(self, topic: str) -> TopicFacts:
        """Return a topic's id and partitions.

        Raises
        ------
        KafkaTopicError, KafkaAccessError, KafkaUnreachableError
        """
        wanted = self._kafka.TopicCollection([topic])
        answers = self._answers(
            lambda: self._admin.describe_topics(wanted, request_timeout=self._answer_seconds), topic
        )
        (found,) = answers.values()
        topic_id = "" if found.topic_id is None else str(found.topic_id)
        return TopicFacts(topic_id, tuple(sorted(part.id for part in found.partitions)))

    def first_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first offset that each partition still holds."""
        return self._offsets(topic, partitions, self._admin_kind.OffsetSpec.earliest())

    def end_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the last stable offset of each partition: before it, every transaction is committed or aborted."""
        return self._offsets(topic, partitions, self._admin_kind.OffsetSpec.latest())

    def offsets_of_time(self, topic: str, partitions: Iterable[int], time_us: int) -> dict[int, int]:
        """Return for each partition the first offset whose message is not older than a time; its end if there is none.

        The times are the messages' own, to the millisecond: a message within the time's millisecond counts.
        """
        partitions = tuple(partitions)
        found = self._offsets(topic, partitions, self._admin_kind.OffsetSpec.for_timestamp(time_us // 1000))
        ends = self.end_offsets(topic, partitions)
        return {part: ends[part] if offset < 0 else min(offset, ends[part]) for part, offset in found.items()}

    def topics(self) -> list[str]:
        """Return the names of all topics but the brokers' own, sorted.

        Raises
        ------
        KafkaAccessError, KafkaUnreachableError
        """
        try:
            found = self._admin.list_topics(timeout=self._answer_seconds).topics
        except self._kafka.KafkaException as error:
            name = str(error.args[0].name())
        else:
            return sorted(name for name in found if not name.startswith("__"))
        self._admin.poll(0)
        all_topics = "(all)"
        raise self._errors.refusal(all_topics, self._errors.cause(name))

    def tell_group(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets for a consumer group, by topic and partition: best effort, as nothing is read of them."""
        at = [self._kafka.TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
        try:
            wanted = [self._kafka.ConsumerGroupTopicPartitions(group, at)]
            told = self._admin.alter_consumer_group_offsets(wanted, request_timeout=_TELL_SECONDS)
            for part in told[group].result(_TELL_SECONDS).topic_partitions:
                if part.error is not None:
                    raise self._kafka.KafkaException(part.error)
        except self._kafka.KafkaException as error:
            name = str(error.args[0].name())
        except TimeoutError:
            name = "_TIMED_OUT"
        else:
            self._untold.discard(group)
            return
        if group not in self._untold:
            _log.warning("the brokers do not take positions for the group %s: %s; the join goes on", group, name)
        self._untold.add(group)

    def _offsets(self, topic: str, partitions: Iterable[int], spec: Any) -> dict[int, int]:
        wanted = {self._kafka.TopicPartition(topic, part): spec for part in partitions}
        if not wanted:
            return {}
        answers = self._answers(
            lambda: self._admin.list_offsets(
                wanted,
                isolation_level=self._kafka.IsolationLevel.READ_COMMITTED,
                request_timeout=self._answer_seconds,
            ),
            topic,
        )
        return {part.partition: answer.offset for part, answer in answers.items()}

    def _answers(self, ask: Callable[[], Mapping[Any, Future[Any]]], topic: str) -> dict[Any, Any]:
        begun, is_told = self._clock(), False
        until = begun + self._answer_seconds
        while True:
            asked = ask()
            while wait_for(asked.values(), _LOOK_SECONDS).not_done:
                self._admin.poll(0)
                if self._errors.is_refused or self._clock() > until:
                    raise self._errors.refusal(topic)
                if not is_told and (now := self._clock()) - begun > _QUIET_SECONDS:
                    is_told = True
                    waiting = "no broker answers for topic %s yet: %s; they are asked for %.0f s more"
                    _log.warning(waiting, topic, self._errors.cause(), until - now)
            try:
                return {part: answer.result() for part, answer in asked.items()}
            except self._kafka.KafkaException as error:
                name = str(error.args[0].name())
            self._admin.poll(0)
            if name not in PASSING or self._errors.is_refused or self._clock() > until:
                cause = self._errors.cause(name) if name in {"_TIMED_OUT", *PASSING} else name
                raise self._errors.refusal(topic, cause)
            self._wait(_PAUSE_SECONDS)
