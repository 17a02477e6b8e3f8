"""Sends a load to a broker, round by round, and restarts the broker: a thread beside the drivers' lives."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from typing import Any

from tests.faults.topics.load import Load
from tests.support.kafka import KafkaBroker, new_topic

__all__ = ["Sender"]

_WITHIN_S = 120.0
_ABORTED_SHARE = 0.2  # of rounds
_COMMITTED_SHARE = 0.2


class Sender(threading.Thread):
    """Sends so many messages as it is allowed to, and then waits until it may send more.

    Parameters
    ----------
    broker : KafkaBroker
    load : Load
    rows : int
        Messages of both topics together, those of aborted transactions aside.

    Attributes
    ----------
    topics : tuple of str
    done : Counter
        What was done: transactions that were aborted and committed, restarts of the broker, partitions added.
    error : BaseException or None
        What ended it early.
    """

    def __init__(self, broker: KafkaBroker, load: Load, rows: int) -> None:
        from confluent_kafka import Producer

        super().__init__(name="sender", daemon=True)
        self._broker, self._load, self._rows = broker, load, rows
        self._dice = random.Random(f"sender {load.seed}")
        self.topics = (new_topic(broker.servers, load.partitions[0]), new_topic(broker.servers, load.partitions[1]))
        self._partitions = list(load.partitions)
        own = {"bootstrap.servers": broker.servers, "linger.ms": 5, "log_level": 0}
        self._plain = Producer({**own, "enable.idempotence": True})
        self._transactional = Producer({**own, "transactional.id": self.topics[0]})
        self._transactional.init_transactions(_WITHIN_S)
        self._condition = threading.Condition()
        self._allowed = self._restarts = 0
        self._is_open = False
        self.sent = 0
        self.done: Counter[str] = Counter()
        self.error: BaseException | None = None

    @property
    def all_sent(self) -> bool:
        """Whether all is sent."""
        return self.sent >= self._rows

    @property
    def waits(self) -> bool:
        """Whether it has sent all that it may."""
        return self.sent >= min(self._allowed, self._rows)

    def allow(self, rows: int) -> None:
        """Let it send so many messages more."""
        with self._condition:
            self._allowed += rows
            self._condition.notify()

    def restart_broker(self) -> None:
        """Have the broker ended and begun again before the next round."""
        self._restarts += 1

    def run(self) -> None:
        """Send all."""
        try:
            number = 0
            while not self.all_sent:
                with self._condition:
                    while self.waits:
                        self._condition.wait()
                self._round(number)
                number += 1
        except BaseException as error:  # the campaign tells it
            self.error = error

    def _round(self, number: int) -> None:
        if self.sent >= self._rows // 2 and not self.done["partition added"]:
            self._add_partition()
        for side, count in enumerate(self._partitions):
            chosen, kind = self._dice.randrange(count), self._dice.random()
            for partition in range(count):
                if self._load.is_silent(side, partition, number):
                    continue
                if partition == chosen and kind < _ABORTED_SHARE:
                    self._begin()
                    self._send(self._transactional, side, partition, self._load.values(side, partition, number, True))
                    self._end(commit=False)
                values = self._load.values(side, partition, number)
                if partition == chosen and kind > 1 - _COMMITTED_SHARE:
                    self._begin()  # it stays open while others are sent, and maybe while the broker restarts
                    self._send(self._transactional, side, partition, values)
                else:
                    self._send(self._plain, side, partition, values)
                self.sent += len(values)
        assert self._plain.flush(_WITHIN_S) == 0
        if self._restarts:
            self._restarts -= 1
            how = self._dice.choice([signal.SIGTERM, signal.SIGKILL])
            self._broker.restart(how)
            self.done[f"broker {how.name}"] += 1
        self._end()

    def _begin(self) -> None:
        self._end()
        self._transactional.begin_transaction()
        self._is_open = True

    def _end(self, *, commit: bool = True) -> None:
        from confluent_kafka import KafkaException

        if not self._is_open:
            return
        self._is_open = False
        if commit:
            try:
                self._transactional.commit_transaction(_WITHIN_S)
                self.done["committed"] += 1
                return
            except KafkaException as error:  # the broker was killed meanwhile, and knows nothing of it
                if not error.args[0].txn_requires_abort():
                    raise
        self._transactional.flush(_WITHIN_S)  # so that the broker has what is aborted
        self._transactional.abort_transaction(_WITHIN_S)
        self.done["aborted"] += 1

    def _send(self, producer: Any, side: int, partition: int, values: list[bytes | None]) -> None:
        for value in values:
            producer.produce(self.topics[side], value, partition=partition)
        producer.poll(0)

    def _add_partition(self) -> None:
        from confluent_kafka.admin import AdminClient, NewPartitions

        admin = AdminClient({"bootstrap.servers": self._broker.servers, "log_level": 0})
        admin.create_partitions([NewPartitions(self.topics[0], self._partitions[0] + 1)])[self.topics[0]].result(60)
        for producer in (self._plain, self._transactional):
            known = self._partitions[0]
            while known == self._partitions[0]:
                time.sleep(0.1)  # the brokers tell each other
                known = len(producer.list_topics(self.topics[0], 30).topics[self.topics[0]].partitions)
        self._partitions[0] += 1
        self.done["partition added"] += 1
