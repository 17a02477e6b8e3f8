"""What Prometheus and OpenTelemetry are told: one list of measures, with the names of both conventions.

A measure has the name and the unit of OpenTelemetry (``streamjoin.rows``, ``{row}``). Its name in Prometheus follows by
their common rules: dots become underscores, the unit is a suffix, and a count ends in ``_total``.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from streamjoin_ds.errors import DependencyMissingError
from streamjoin_ds.version import version
from streamjoin_ds.watch.address import Listener
from streamjoin_ds.watch.watched_join import OUTCOMES, WatchedJoin

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["MEASURES", "Measure", "check_metrics", "check_otlp", "export_otlp", "prometheus_registry", "serve_metrics"]

_SUFFIXES = {"s": "seconds", "By": "bytes"}
_INSTRUMENTATION, _PREFIX = "streamjoin_ds", "streamjoin"
Sample = tuple[dict[str, str], float]


@dataclass(frozen=True)
class Measure:
    """A number of a join.

    Parameters
    ----------
    name : str
        As OpenTelemetry writes it.
    unit : str
        Of UCUM, as OpenTelemetry writes it: "s", "By", "{row}".
    help : str
        What it is.
    samples : callable
        Returns its values of a join, each with its labels; none where they are not known.
    is_count : bool
        Whether it only grows.
    """

    name: str
    unit: str
    help: str
    samples: Callable[[WatchedJoin], Iterable[Sample]]
    is_count: bool = False

    @property
    def prometheus_name(self) -> str:
        """Its name in Prometheus."""
        name, suffix = re.sub(r"\W", "_", self.name), _SUFFIXES.get(self.unit, "")
        name = f"{name}_{suffix}" if suffix and not name.endswith(f"_{suffix}") else name
        return f"{name}_total" if self.is_count else name


def _rows(join: WatchedJoin) -> Iterator[Sample]:
    for stream, counts in list(join.history.totals.items()):
        for outcome in OUTCOMES:
            yield {"stream": stream, "outcome": outcome}, counts[outcome]


def _of_streams(name: str) -> Callable[[WatchedJoin], Iterator[Sample]]:
    def samples(join: WatchedJoin) -> Iterator[Sample]:
        for stream, counts in list(join.history.totals.items()):
            yield {"stream": stream}, counts[name]

    return samples


def _count(name: str) -> Callable[[WatchedJoin], Iterator[Sample]]:
    return lambda join: iter([({}, join.history.counts[name])] if join.history.commit else [])


def _last(table: str, name: str, scale: float = 1.0) -> Callable[[WatchedJoin], Iterator[Sample]]:
    """Return what reads a number of the newest batch, of its row of the punctuations or of the metrics."""

    def samples(join: WatchedJoin) -> Iterator[Sample]:
        row: Mapping[str, Any] = join.history.commit if table == "commit" else join.history.batch
        if row.get(name) is not None:
            yield {}, row[name] / scale

    return samples


def _lag(join: WatchedJoin) -> Iterator[Sample]:
    commit = join.history.commit
    if commit.get("largest_ts") is not None and commit.get("punctuation") is not None:
        yield {}, (commit["largest_ts"] - commit["punctuation"]) / 1e6


def _largest(join: WatchedJoin) -> Iterator[Sample]:
    for stream, largest_us in list(join.history.largest_us.items()):
        yield {"stream": stream}, largest_us / 1e6


def _held(join: WatchedJoin) -> Iterator[Sample]:
    batch = join.history.batch
    if batch:
        stream = (batch.get("held_by") or "").partition("/")[0]
        yield {"stream": stream}, (batch.get("held_us") or 0) / 1e6


def _cells(name: str, scale: float = 1.0) -> Callable[[WatchedJoin], Iterator[Sample]]:
    def samples(join: WatchedJoin) -> Iterator[Sample]:
        for cell in join.history.cells:
            yield {"cell": str(cell["cell"])}, cell[name] / scale

    return samples


MEASURES = (
    Measure("streamjoin.rows", "{row}", "Rows read, by what became of them.", _rows, is_count=True),
    Measure("streamjoin.null_keys", "{row}", "Stored rows with a null or NaN in a compared column.",
            _of_streams("null_keys"), is_count=True),
    Measure("streamjoin.lost_offsets", "{offset}", "Offsets of topics that were gone before they were read.",
            _of_streams("lost_offsets"), is_count=True),
    Measure("streamjoin.matches", "{row}", "Results committed.", _count("matches"), is_count=True),
    Measure("streamjoin.batches", "{batch}", "Batches committed.", _count("batches"), is_count=True),
    Measure("streamjoin.commit.time", "s", "When the newest batch was committed, seconds since 1970.",
            _last("commit", "committed_at", 1e6)),
    Measure("streamjoin.punctuation.time", "s", "Event time before which the results are complete, seconds since 1970.",
            _last("commit", "punctuation", 1e6)),
    Measure("streamjoin.watermark.time", "s", "Event time before which a tuple is late, seconds since 1970.",
            _last("commit", "watermark", 1e6)),
    Measure("streamjoin.event.time", "s", "Largest event time of each stream, seconds since 1970.", _largest),
    Measure("streamjoin.lag", "s", "How far the punctuation is behind the newest event time.", _lag),
    Measure("streamjoin.watermark.held", "s", "How far a silent stream holds the watermark back; 0: none does.", _held),
    Measure("streamjoin.backlog", "{row}", "Records that the source knew and left for later batches.",
            _last("batch", "backlog_rows")),
    Measure("streamjoin.backlog.size", "By", "Bytes of files that are not read.", _last("batch", "backlog_bytes")),
    Measure("streamjoin.backlog.ahead", "s", "How far the newest unread record is ahead, in event time.",
            _last("batch", "backlog_us", 1e6)),
    Measure("streamjoin.delay", "s", "Longest wait of a tuple in the batch before the newest.",
            _last("batch", "delay_us", 1e6)),
    Measure("streamjoin.delay.limit", "s", "The bound on that wait.", _last("batch", "max_delay_us", 1e6)),
    Measure("streamjoin.batch.duration", "s", "From the plan of the newest batch to its commit.",
            _last("commit", "batch_ms", 1e3)),
    Measure("streamjoin.restarts", "{restart}", "How often the query was started again after errors.",
            _last("batch", "restarts")),
    Measure("streamjoin.cell.duration", "s", "How long each cell worked on the newest batch.",
            _cells("duration_ms", 1e3)),
    Measure("streamjoin.cell.state.rows", "{row}", "Tuples in the windows of each cell.", _cells("state_rows")),
    Measure("streamjoin.cell.state.size", "By", "Bytes of the windows of each cell.", _cells("state_bytes")),
)  # fmt: skip
"""All measures. Each has the label ``join`` besides: the folder's name of the table of matches."""


class _Collector:
    """What Prometheus' client asks for the numbers, at each scrape."""

    def __init__(self, join: WatchedJoin) -> None:
        self._join = join

    def collect(self) -> Iterator[Metric]:
        """Return the families of metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        self._join.poll()
        for measure in MEASURES:
            family: Any = None
            for labels, value in measure.samples(self._join):
                labels = {"join": self._join.name, **labels}
                if family is None:
                    kind = CounterMetricFamily if measure.is_count else GaugeMetricFamily
                    family = kind(measure.prometheus_name, measure.help, labels=list(labels))
                family.add_metric(list(labels.values()), value)
            if family is not None:
                yield family


def prometheus_registry(join: WatchedJoin) -> CollectorRegistry:
    """Return the registry of a join's metrics, for `prometheus_client`.

    Raises
    ------
    DependencyMissingError
    """
    check_metrics()
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(join))
    return registry


def serve_metrics(join: WatchedJoin, listener: Listener) -> Callable[[], None]:
    """Serve a join's metrics to Prometheus from a thread; return what ends that.

    Raises
    ------
    DependencyMissingError
    """
    registry = prometheus_registry(join)
    from prometheus_client import MetricsHandler

    where = (listener.address.host, listener.address.port)
    server = ThreadingHTTPServer(where, MetricsHandler.factory(registry), bind_and_activate=False)
    server.socket.close()
    server.socket = listener.socket
    threading.Thread(target=server.serve_forever, name="streamjoin-metrics", daemon=True).start()

    def end() -> None:
        server.shutdown()
        server.server_close()

    return end


def export_otlp(join: WatchedJoin) -> Callable[[], None]:
    """Send a join's metrics by OTLP, as OpenTelemetry's environment variables say; return what ends that.

    Raises
    ------
    DependencyMissingError
    """
    check_otlp()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    own = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "streamjoin"}
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], Resource.create(own))
    meter = provider.get_meter(_INSTRUMENTATION, version())

    def observed(measure: Measure) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            join.poll()
            for labels, value in measure.samples(join):
                named = {"join": join.name, **labels}
                yield Observation(value, {f"{_PREFIX}.{name}": text for name, text in named.items()})

        return observe

    for measure in MEASURES:
        make: Any = meter.create_observable_counter if measure.is_count else meter.create_observable_gauge
        make(measure.name, [observed(measure)], measure.unit, measure.help)
    return provider.shutdown


def check_metrics() -> None:
    """Refuse an endpoint for Prometheus where its client is not installed.

    Raises
    ------
    DependencyMissingError
    """
    if find_spec("prometheus_client") is None:
        msg = "an endpoint for Prometheus needs the package prometheus-client"
        raise DependencyMissingError(msg, name="metrics", hint="pip install 'streamjoin-ds[metrics]'")


def check_otlp() -> None:
    """Refuse OTLP where OpenTelemetry's SDK is not installed.

    Raises
    ------
    DependencyMissingError
    """
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        msg = "OTLP needs OpenTelemetry's SDK and its exporter over HTTP"
        raise DependencyMissingError(msg, name="otlp", hint="pip install 'streamjoin-ds[otlp]'")
