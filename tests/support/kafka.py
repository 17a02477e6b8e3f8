"""A Kafka broker for tests: one process, on loopback, with the jars from Maven in the user's cache.

::

    jars in the cache? ──no──► Maven (45 jars, 43 MB, once) ──► storage formatted ──► broker and controller in one

The broker is up after ten seconds and takes about 650 MB. librdkafka's mock cluster (`mock_cluster`) is up at once, and
knows neither transactions, nor times, nor the ids of topics.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamjoin_ds.spark.java import QUICK_COMPILER, find_java
from streamjoin_ds.spark.local_files import trusted_cache

VERSION = "4.1.0"
# In Java's base64 without padding, as Kafka writes ids; any 16 bytes are an id.
_CLUSTER = "c3RyZWFtam9pbi10ZXN0cw"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>kafka</artifactId><version>1</version><dependencies><dependency>
<groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
</dependency></dependencies></project>"""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_STARTS_SECONDS = 90
_PORTS = (15_000, 32_000)


def kafka_jars() -> Path:
    """Return the folder of the broker's jars; fetch them with Maven where they are not there."""
    cache = trusted_cache()
    assert cache is not None, "the user's cache folder cannot be made, or others may write to it"
    folder = cache / f"kafka-{VERSION}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / "pom.xml").write_text(_POM.format(version=VERSION))
            copied = Path(scratch) / "jars"
            command = ["mvn", "-q", "-B", _COPY, f"-DoutputDirectory={copied}", "-DincludeScope=runtime"]
            subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=600)
            whole = Path(tempfile.mkdtemp(dir=cache)) / "jars"
            shutil.move(copied, whole)
            with contextlib.suppress(OSError):  # another process was first
                whole.rename(folder)
            shutil.rmtree(whole.parent)
    return folder


def free_port() -> int:
    """Return a port of loopback that was free a moment ago.

    It is none that Linux gives to connections. Otherwise a client that tries to come back to a broker that is down may
    be given the very port that it calls: it is then connected with itself, and the broker cannot have its port again.
    """
    chooser = random.SystemRandom()
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", chooser.randrange(*_PORTS)))
            return int(probe.getsockname()[1])


def _certified(folder: Path) -> Path:
    """Write a key and a certificate for loopback, as the broker reads them; return the certificate for clients."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    (folder / "broker.pem").write_text(key.read_text() + certificate.read_text())
    return certificate


class KafkaBroker:
    """A broker that runs until `stop`; `restart` begins it again with what it stored.

    Parameters
    ----------
    folder : Path
        Where it keeps its data, its settings and its log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, controller, self.sasl_port, self.tls_port = (free_port() for _ in range(4))
        self.servers = f"127.0.0.1:{self.port}"
        self.sasl_servers = f"127.0.0.1:{self.sasl_port}"
        self.tls_servers = f"127.0.0.1:{self.tls_port}"
        listeners = {"PLAIN": self.port, "CONTROLLER": controller, "SASL": self.sasl_port, "TLS": self.tls_port}
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = _certified(folder)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "advertised.listeners": f"PLAIN://{self.servers},SASL://{self.sasl_servers},TLS://{self.tls_servers}",
            "listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SASL_SSL",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.tls.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(folder / "broker.pem"),
            "listener.name.tls.plain.sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="right";'
            ),
            "listener.name.tls.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.sasl.plain.sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="right";'
            ),
            "log.dirs": str(folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Compaction and deletion run when they have something to do, not every five minutes.
            "log.cleaner.backoff.ms": "200",
            "log.retention.check.interval.ms": "500",
            "log.initial.task.delay.ms": "500",
            "file.delete.delay.ms": "100",
        }
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        scram = "SCRAM-SHA-256=[name=scram,password=right]"
        self._run("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings), "--add-scram", scram)
        self._process = self._start()

    @property
    def pid(self) -> int:
        """The broker's process."""
        return self._process.pid

    def _command(self, *words: str) -> list[str]:
        options = ["-Xmx512m", *QUICK_COMPILER.split(), "-XX:+UseSerialGC"]
        return [str(find_java().home / "bin/java"), *options, "-cp", f"{kafka_jars()}/*", *words]

    def _run(self, *words: str) -> None:
        subprocess.run(self._command(*words), check=True, capture_output=True, timeout=_STARTS_SECONDS)

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "broker.log").open("ab") as log:
            process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)), stdout=log, stderr=log, cwd=self.folder
            )
        until = time.monotonic() + _STARTS_SECONDS
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return process
            time.sleep(0.2)  # the broker is another process: only its port tells that it is up
        process.kill()
        msg = f"the broker did not start: {self.folder / 'broker.log'}"
        raise RuntimeError(msg)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the broker's process."""
        if self._process.poll() is None:
            os.kill(self._process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the broker and begin it again, with the same ports and data."""
        self.stop(how)
        self._process = self._start()


def new_topic(servers: str, partitions: int = 1, name: str = "", **config: str) -> str:
    """Make a topic of a real broker, and return its name; `config` names settings with _ for their points."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = name or f"t-{uuid.uuid4().hex[:8]}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(20)
    return name


def produce(servers: str, topic: str, values: list[bytes | None], **message: Any) -> None:
    """Send messages and wait until the broker has them; `message` is given to each (`partition`, `key`, ...)."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for value in values:
        while True:
            try:
                producer.produce(topic, value, **{"partition": 0, **message})
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(30) == 0


@contextlib.contextmanager
def mock_cluster(*topics: str) -> Iterator[str]:
    """Run librdkafka's mock cluster with these topics, of four partitions each; give its servers."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    brokers = admin.list_topics(timeout=10).brokers.values()
    for topic in topics:
        admin.list_topics(topic, timeout=10)  # the mock makes a topic that is asked for
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del admin
