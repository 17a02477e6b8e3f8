"""The process beside a query: who may ask it, what it answers, and that it ends with its query."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator

import pytest

from streamjoin_ds.errors import ArgumentError
from streamjoin_ds.watch.address import TOKEN_VARIABLE, Address, Listener
from streamjoin_ds.watch.watcher import Watcher, WatchOrder, watching
from tests.watch.conftest import Joined

pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")


def asked(url: str, path: str, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    where = url.split("/")[2].rpartition(":")
    connection = http.client.HTTPConnection("127.0.0.1", int(where[2]), timeout=120)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.msg
    connection.close()
    return found


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def watcher(joined: Joined) -> Iterator[Watcher]:
    with Watcher(WatchOrder(joined.checkpoint, page="0", metrics="0")) as found:
        yield found


@pytest.mark.slow
def test_page_and_metrics_are_served(watcher: Watcher, joined: Joined) -> None:
    assert watcher.url is not None
    assert watcher.metrics_url is not None
    status, body, headers = asked(watcher.url, "/")
    assert (status, b"page.js" in body) == (200, True)
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    for name in ("page.js", "page.css", "picture.js", "uplot.js", "uplot.css", "land.json"):
        assert asked(watcher.url, f"/{name}")[0] == 200
    facts = json.loads(asked(watcher.url, "/facts")[1])
    assert facts["join"]["name"] == "near"
    assert facts["problem"] is None
    status, body, _ = asked(watcher.metrics_url, "/metrics")
    assert f'streamjoin_matches_total{{join="near"}} {float(facts["totals"]["matches"])}' in body.decode()


@pytest.mark.slow
def test_pages_of_the_web_may_not_ask(watcher: Watcher) -> None:
    assert watcher.url is not None
    assert asked(watcher.url, "/facts", Host="evil.example")[0] == 400
    assert asked(watcher.url, "/../watcher.py")[0] == 404
    assert asked(watcher.url, "/facts?after=-1")[0] == 200


@pytest.mark.slow
def test_other_machines_need_the_token(joined: Joined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret of this test")
    with Watcher(WatchOrder(joined.checkpoint, page="0.0.0.0:0")) as found:
        assert found.url is not None
        assert asked(found.url, "/facts")[0] == 401
        assert asked(found.url, "/facts", Cookie="streamjoin_page_token=other")[0] == 401
        status, _, headers = asked(found.url, "/?token=secret%20of%20this%20test")
        assert (status, headers["Location"]) == (303, "/")
        cookie = headers["Set-Cookie"].split(";")[0]
        assert "HttpOnly" in headers["Set-Cookie"]
        assert asked(found.url, "/facts", Cookie=cookie)[0] == 200


@pytest.mark.slow
def test_the_page_ends_with_its_query_and_its_address_is_free_again(joined: Joined) -> None:
    with watching(WatchOrder(joined.checkpoint, page="0")) as until:
        is_over: list[bool] = []
        until(lambda: bool(is_over))
    found = Watcher(WatchOrder(joined.checkpoint, page="0"))
    assert found.url is not None
    where = found.url.split("/")[2]
    asked(found.url, "/facts")
    is_over.append(True)
    found.close()
    began_s = time.monotonic()
    with Watcher(WatchOrder(joined.checkpoint, page=where)) as again:
        assert again.url == found.url
        assert asked(again.url, "/facts")[0] == 200
    while is_there(found.process_id) and time.monotonic() - began_s < 120:
        time.sleep(0.05)
    assert not is_there(found.process_id)


def test_what_cannot_be_is_refused_before_anything_begins(joined: Joined) -> None:
    for text in ("nobody:80", "65536", "1.2.3.4:x", "", "127.0.0.1"):
        with pytest.raises(ArgumentError, match="page is no address"):
            joined.join().run_local(joined.table, joined.checkpoint, page=text)
    with pytest.raises(ArgumentError, match="nobody can listen"):
        Listener.at(Address.parse("192.0.2.1:0", "page"), "page")
    with Listener.at(Address.parse("0", "page"), "page").socket as taken:
        port = taken.getsockname()[1]
        seconds = iter(range(100))
        with pytest.raises(ArgumentError, match="in use"):
            Listener.at(Address("127.0.0.1", port), "page", clock=lambda: next(seconds), wait=lambda _: None)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("80", "127.0.0.1", 80), (":80", "127.0.0.1", 80), ("localhost:1", "127.0.0.1", 1), ("[::1]:2", "::1", 2)],
)
def test_an_address_is_a_port_or_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert Address.parse(text, "page") == Address(host, port)
    assert Address.parse(text, "page").is_loopback
