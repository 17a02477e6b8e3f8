"""Metrics have the names of their conventions, and every query of the dashboard and the alerts is one of them."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.watch.address import Address, Listener
from streamjoin_ds.watch.measures import MEASURES, export_otlp, prometheus_registry, serve_metrics
from streamjoin_ds.watch.watched_join import WatchedJoin
from tests.support.documents import ROOT
from tests.watch.conftest import Joined

MONITORING = ROOT / "streamjoin_ds" / "_data" / "monitoring"
NAMES = {measure.prometheus_name: measure for measure in MEASURES}
METRIC = re.compile(r"\bstreamjoin_\w+")


def dashboard_queries() -> list[str]:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def alert_queries() -> list[str]:
    rules = (MONITORING / "alerts.yml").read_text().split("expr: ")[1:]
    texts = [re.split(r"\n\s+(?:for|labels): ", rule)[0].removeprefix(">-") for rule in rules]
    return [" ".join(text.split()) for text in texts]


def test_every_metric_that_is_asked_for_exists_and_is_documented() -> None:
    asked = {name for query in [*dashboard_queries(), *alert_queries()] for name in METRIC.findall(query)}
    assert asked <= set(NAMES)
    assert asked == set(NAMES), "a metric that nobody shows"
    page = (ROOT / "docs" / "watching.md").read_text()
    assert {name for name in METRIC.findall(page) if name != "streamjoin_ds"} == set(NAMES)
    assert {f"`{measure.name}`" for measure in MEASURES} <= set(re.findall(r"`[\w.]+`", page))
    assert set(re.findall(r"alert: (\w+)", (MONITORING / "alerts.yml").read_text())) == set(
        re.findall(r"^\| (Streamjoin\w+)", page, re.MULTILINE)
    )


def test_names_follow_the_conventions() -> None:
    for measure in MEASURES:
        assert re.fullmatch(r"streamjoin(\.[a-z_]+)+", measure.name)
        assert measure.unit in ("s", "By") or re.fullmatch(r"\{[a-z]+\}", measure.unit)
        assert measure.prometheus_name.endswith("_total") == measure.is_count


def test_prometheus_is_told_what_the_tables_say(joined: Joined) -> None:
    pytest.importorskip("prometheus_client")
    from prometheus_client import generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    join = WatchedJoin(joined.checkpoint)
    registry = prometheus_registry(join)
    text = generate_latest(registry).decode()
    samples = {
        (one.name, *sorted(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    facts = join.facts()
    for stream, counts in facts["streams"].items():
        for outcome in ("stored", "late", "rejected"):
            key = (("join", "near"), ("outcome", outcome), ("stream", stream))
            assert samples[("streamjoin_rows_total", *key)] == counts[outcome]
    assert samples["streamjoin_lag_seconds", ("join", "near")] == facts["last"]["lag_us"] / 1e6
    assert {name for name, *_ in samples} <= set(NAMES)
    assert {name for name, *_ in samples} >= set(NAMES) - {
        "streamjoin_backlog_size_bytes",
        "streamjoin_backlog_ahead_seconds",
        "streamjoin_delay_seconds",
        "streamjoin_delay_limit_seconds",
        "streamjoin_watermark_time_seconds",
        "streamjoin_punctuation_time_seconds",
        "streamjoin_lag_seconds",
    }


def test_a_collector_is_sent_the_same(joined: Joined, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        join = WatchedJoin(joined.checkpoint)
        export_otlp(join)()  # what ends it sends what is left
        server.shutdown()
    sent = ExportMetricsServiceRequest.FromString(bodies[-1]).resource_metrics[0]
    assert ("service.name", "streamjoin") in [(one.key, one.value.string_value) for one in sent.resource.attributes]
    metrics = {metric.name: metric for scope in sent.scope_metrics for metric in scope.metrics}
    assert metrics["streamjoin.matches"].sum.is_monotonic
    assert metrics["streamjoin.matches"].sum.data_points[0].as_int == join.facts()["totals"]["matches"]
    assert metrics["streamjoin.cell.state.size"].unit == "By"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is of Debian's package prometheus")
def test_promtool_takes_the_rules() -> None:
    for what in ("rules", "config"):
        file = MONITORING / {"rules": "alerts.yml", "config": "prometheus.yml"}[what]
        done = subprocess.run(["promtool", "check", what, str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def prometheus(joined: Joined, tmp_path: Path) -> Iterator[str]:
    """A real Prometheus that has asked for the metrics of a join."""
    listener = Listener.at(Address.parse("0", "metrics"), "metrics")
    end = serve_metrics(WatchedJoin(joined.checkpoint), listener)
    config = (MONITORING / "prometheus.yml").read_text().replace("10s", "1s")
    config = config.replace("127.0.0.1:9464", f"127.0.0.1:{listener.address.port}")
    (tmp_path / "prometheus.yml").write_text(config)
    shutil.copy(MONITORING / "alerts.yml", tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    with subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)
            end()


def found(prometheus: str, query: str) -> list[Any]:
    url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return list(json.load(answer)["data"]["result"])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is a package of Debian")
def test_a_real_prometheus_answers_every_query(prometheus: str) -> None:
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s:
        try:
            if len(found(prometheus, "count_over_time(streamjoin_batches_total[1m]) > 3")):
                break
        except OSError:
            pass
        time.sleep(0.2)
    else:
        pytest.fail("Prometheus has not asked for the metrics")
    for query in dashboard_queries():
        asked = query.replace("$join", ".*").replace("$__rate_interval", "1m")
        there = {"streamjoin_" + name for name in ("rows_total", "matches_total", "batches_total", "cell_state_rows")}
        is_known = set(METRIC.findall(asked)) <= there | {"streamjoin_commit_time_seconds", "streamjoin_backlog"}
        assert found(prometheus, asked) or not is_known, query
    for query in alert_queries():
        found(prometheus, query)  # an error is an HTTPError
    firing = [one["metric"]["alertname"] for one in found(prometheus, 'ALERTS{alertstate="firing"}')]
    assert "StreamjoinAbsent" not in firing
