"""The consumer of a topic of Kafka: offsets are committed once their messages are in the spool.

::

    consume ──► keep (fdatasync) ──► commit, in the name of a group of the folder's own ──► consume
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from streamjoin_ds.errors import (
    ArgumentError,
    IntakeError,
    KafkaDataLostError,
    KafkaTopicChangedError,
    KafkaUnreachableError,
)
from streamjoin_ds.kafka.client import ALL_AWAY, PASSING, ClientErrors, confluent, made
from streamjoin_ds.kafka.settings import Settings, SettingsSource
from streamjoin_ds.logs import Reach
from streamjoin_ds.spool.address import Address, Secrets, StoppedError

__all__ = ["KafkaClient"]

_log = logging.getLogger(__name__)

_MOST_MESSAGES = 10_000  # messages that are taken at a time: one group, one sync and one commit
_TICK_S = 0.2  # the longest wait for messages before the caller is asked whether to stop
_ANSWER_S = 20.0  # the longest wait for an answer of the brokers
_PAUSE_S = 0.1  # before brokers are asked again, who said that something passes
_LOOK_S = 30.0  # between two looks for new partitions
_END, _LOST, _CUT = "_PARTITION_EOF", "_AUTO_OFFSET_RESET", "_LOG_TRUNCATION"

AnswerT = TypeVar("AnswerT")
# Takes a group of messages, topic and payload of each, and returns when they are on the device.
Keep = Callable[[Sequence[tuple[bytes, bytes]]], None]


class KafkaClient:
    """Takes the messages of one topic, all its partitions, also those that come later. No consumer group is joined.

    Of a transaction it takes what was committed. The topic of a message is ``topic/partition/offset``, so that a
    message that comes twice can be told. A message without a value (a tombstone of a compacted topic) has an empty
    payload.

    Parameters
    ----------
    address : Address
        Brokers, topic and parameters.
    secrets : Secrets
        User, password and certificates, where the settings do not say them.
    group : str
        The group in whose name offsets are committed, where the settings do not say one. It must be the same at each
        start, and no other client's.
    keep : callable
        Called with each group of messages. Their offsets are committed when it returns.
    tick : callable
        Called at least twice a second while nothing comes; returns whether to go on.

    Raises
    ------
    ArgumentError
        A setting cannot be read or is refused.
    DependencyMissingError
        confluent-kafka is not installed.
    """

    def __init__(self, address: Address, secrets: Secrets, group: str, keep: Keep, tick: Callable[[], bool]) -> None:
        self._address, self._keep, self._tick = address, keep, tick
        self._errors = ClientErrors()
        self._kafka = confluent()
        said = address.parameters
        given = SettingsSource(said.get("settings", ""), said.get("settings_env", "")).read()
        settings = {**given.of_consumer(address.servers), **_secret_settings(secrets, given)}
        settings["group.id"] = given.get("group.id", group)
        consumer = partial(self._kafka.Consumer, on_commit=_committed)
        self._consumer = made(consumer, settings, self._errors)
        self._topic = address.topic
        self._reach = Reach(f"topic {address.topic}", _log.warning, "the intake waits for it")
        self._next: dict[int, int] = {}  # the offset of each partition's next message
        self._kept: dict[int, int] = {}  # the same, of partitions of which messages were kept
        self._epochs: dict[int, int] = {}  # the leader epoch of each partition's last message, where it is known
        self._refused: set[int] = set()  # partitions whose next message was refused, though its offset is there
        self.connects = 0
        self.lost_offsets = 0

    def run(self) -> None:
        """Take messages until `tick` returns False. librdkafka connects again by itself.

        Raises
        ------
        IntakeError
            The brokers are not reached at the start.
        KafkaAccessError, KafkaTopicError
            They refuse this client, or have no such topic.
        KafkaDataLostError
            Messages that were not taken are gone, and ``on_data_loss`` is "stop".
        KafkaTopicChangedError
            A partition's log was cut before its next message, and has grown again.
        """
        try:
            self._begin(self._partitions(_ANSWER_S))
            self.connects = 1
            looked_s = time.monotonic()
            while self._tick():
                self._take(self._consumer.consume(_MOST_MESSAGES, timeout=_TICK_S))
                if self._errors.is_refused:
                    raise self._errors.refusal(self._topic)
                self._look_for_brokers()
                if time.monotonic() - looked_s > _LOOK_S:
                    looked_s = time.monotonic()
                    self._look_for_new()
        except StoppedError:
            _log.info("stopped before the brokers have answered")
        finally:
            with contextlib.suppress(self._kafka.KafkaException):
                self._commit(self._kept, wait=True)
            self._consumer.close()

    def _partitions(self, answer_s: float) -> list[int]:
        """Return the topic's partitions. What is wrong with the address, a setting or a right shows here."""
        until_s = time.monotonic() + answer_s
        while True:
            try:
                found = self._consumer.list_topics(self._topic, timeout=1.0).topics[self._topic]
                if found.error is None:
                    return sorted(found.partitions)
                name = str(found.error.name())
                is_passing = name in PASSING
            except self._kafka.KafkaException as error:
                name, is_passing = str(error.args[0].name()), True
                self._consumer.poll(0)
            if self._errors.is_refused or not is_passing or time.monotonic() > until_s:
                break
            if not self._tick():
                raise StoppedError
        cause = name if not is_passing else self._errors.cause(name)
        refused = self._errors.refusal(self._topic, cause)
        if refused.code != "KAFKA_UNREACHABLE":
            raise refused
        msg = f"no broker of {self._address.servers} can be reached: {cause}"
        hint = "check host and port, that the broker runs, and security.protocol in the settings"
        raise IntakeError(msg, name="address", hint=hint)

    def _begin(self, numbers: Sequence[int], *, are_new: bool = False) -> None:
        """Begin partitions where their messages were kept up to; else where the address says, or at their first."""
        is_latest = self._address.parameters.get("start") == "latest" and not are_new
        following: dict[int, int] = {}
        begins: dict[int, int] = {}
        for place in self._asked(lambda: self._places(numbers)):
            following[place.partition] = place.offset
            if place.offset >= 0 and place.leader_epoch is not None:
                self._epochs[place.partition] = place.leader_epoch
            if place.offset < 0:
                first, end = self._ends(place)
                following[place.partition] = begins[place.partition] = end if is_latest else first
        if is_latest:  # a start that is broken off must not begin later
            self._asked(lambda: self._commit(begins, wait=True))
        self._next |= following
        self._assign()

    def _assign(self) -> None:
        """Let all partitions go on at their next messages, if those follow the last ones of the same log."""
        self._consumer.assign(self._at(self._next))

    def _at(self, offsets: Mapping[int, int]) -> list[Any]:
        """Return offsets of partitions as places, with the leader epochs of the messages before them."""
        places = []
        for number, offset in offsets.items():
            epoch = self._epochs.get(number, -1)
            of_epoch = {"leader_epoch": epoch} if epoch >= 0 else {}
            places.append(self._kafka.TopicPartition(self._topic, number, offset, **of_epoch))
        return places

    def _places(self, numbers: Sequence[int]) -> Sequence[Any]:
        """Return the partitions with the offsets that were committed; below 0 where none was."""
        asked = [self._kafka.TopicPartition(self._topic, number) for number in numbers]
        places: Sequence[Any] = self._consumer.committed(asked, timeout=_ANSWER_S)
        for place in places:
            if place.error is not None:  # it has no offset, and looks as if none was committed
                raise self._kafka.KafkaException(place.error)
        return places

    def _ends(self, place: Any) -> tuple[int, int]:
        """Return the first offset that a partition holds, and its next message's."""
        found: tuple[int, int] = self._asked(lambda: self._consumer.get_watermark_offsets(place, timeout=_ANSWER_S))
        return found

    def _asked(self, ask: Callable[[], AnswerT]) -> AnswerT:
        """Return the brokers' answer; ask again while one of them starts, or its partitions or groups move."""
        until_s = time.monotonic() + _ANSWER_S
        while True:
            try:
                return ask()
            except self._kafka.KafkaException as error:
                name = str(error.args[0].name())
            if name not in PASSING or self._errors.is_refused or time.monotonic() > until_s:
                raise self._errors.refusal(self._topic, self._errors.cause(name))
            if not self._tick():
                raise StoppedError
            time.sleep(_PAUSE_S)

    def _look_for_brokers(self) -> None:
        """Say it where brokers answer no more, or again: librdkafka tells at once that none does, not that one does."""
        if not self._reach.is_away:
            self._reach.note(answers=ALL_AWAY not in self._errors.names)
        else:
            with contextlib.suppress(self._kafka.KafkaException):
                self._consumer.list_topics(self._topic, timeout=_TICK_S)
                self._errors.names.clear()
                self._reach.note(answers=True)

    def _look_for_new(self) -> None:
        """Take partitions that were added to the topic, from their first message on."""
        try:
            found = self._consumer.list_topics(self._topic, timeout=1.0).topics[self._topic].partitions
        except self._kafka.KafkaException:  # the brokers are away: librdkafka waits for them
            return
        new = sorted(set(found) - set(self._next))
        if new:
            _log.info("%d partitions were added to the topic", len(new))
            try:
                self._begin(new, are_new=True)
            except KafkaUnreachableError as error:  # the next look finds them again
                _log.warning("%s; asked again", error)

    def _take(self, messages: Sequence[Any]) -> None:
        taken, following = [], {}
        epochs: dict[int, int] = {}
        for message in messages:
            if message.error() is None:
                place = f"{message.topic()}/{message.partition()}/{message.offset()}"
                taken.append((place.encode(), message.value() or b""))
                following[message.partition()] = message.offset() + 1
                epoch = message.leader_epoch()
                known = epochs.get(message.partition(), self._epochs.get(message.partition(), -1))
                if epoch is not None and epoch >= 0:
                    if epoch < known:  # they never go back: another log lies there now
                        raise self._cut(message.partition(), message.offset())
                    epochs[message.partition()] = epoch
        if taken:
            self._keep(taken)
            self._epochs |= epochs
            self._refused -= following.keys()
            self._next |= following
            self._kept |= following
            self._commit(following)
        for message in messages:
            if message.error() is not None:
                self._told(message)

    def _commit(self, offsets: Mapping[int, int], *, wait: bool = False) -> None:
        if offsets:
            self._consumer.commit(offsets=self._at(offsets), asynchronous=not wait)

    def _cut(self, number: int, offset: int) -> KafkaTopicChangedError:
        msg = (
            f"partition {number} of topic {self._topic} holds other messages before offset {offset} than were taken in"
        )
        hint = "an unclean election cut its log, or another cluster has its place: take it into a new folder"
        return KafkaTopicChangedError(msg, name=self._topic, hint=hint)

    def _told(self, message: Any) -> None:
        """Answer an error that comes in place of a message."""
        name, number = str(message.error().name()), message.partition()
        if name == _CUT:
            raise self._cut(number, self._next[number])
        if name == _LOST:
            place = self._kafka.TopicPartition(self._topic, number)
            first, end = self._ends(place)
            if first <= self._next[number] <= end and number in self._epochs:
                if number in self._refused:  # the offset is there, and the leader knows no such epoch before it
                    raise self._cut(number, self._next[number])
                self._refused.add(number)
                self._assign()
                return
            if self._address.parameters.get("on_data_loss") != "skip":
                msg = f"messages of {self._topic}, partition {number}, are gone that were not taken in"
                hint = "let the topic keep them for longer; on_data_loss=skip in the address goes on after them"
                raise KafkaDataLostError(msg, name=f"{self._topic}/{number}", hint=hint)
            self._epochs.pop(number, None)
            lost = max(first - self._next[number], 0)  # none where the topic was made anew
            self.lost_offsets += lost
            _log.warning(
                "messages of partition %d are gone that were not taken in: %d offsets from %d on",
                number,
                lost,
                self._next[number],
            )
            self._next[number] = first
            self._assign()
        elif name != _END:
            self._errors.names.add(name)
            _log.info("the brokers say %s", name)


def _committed(error: Any, offsets: Sequence[Any]) -> None:
    """Hear how a commit went; librdkafka calls this."""
    del offsets
    if error is not None:
        _log.warning("offsets could not be committed (%s): messages may come twice", error.name())


def _secret_settings(secrets: Secrets, given: Settings) -> dict[str, str]:
    """Return the secrets as librdkafka's settings, where these are not said."""
    if secrets.token is not None:
        msg = "Kafka has no token"
        raise ArgumentError(msg, name="token", hint="leave it, or STREAMJOIN_INTAKE_TOKEN, out: give user and password")
    found = {
        "sasl.username": secrets.user,
        "sasl.password": secrets.password,
        "ssl.ca.location": secrets.ca_file,
        "ssl.certificate.location": secrets.certificate_file,
        "ssl.key.location": secrets.key_file,
    }
    told = {name: value for name, value in found.items() if value is not None}
    if told:
        has_user = secrets.user is not None
        told["security.protocol"] = "sasl_ssl" if has_user else "ssl"
        if has_user:
            told["sasl.mechanism"] = "PLAIN"
    return {name: value for name, value in told.items() if name not in given}
