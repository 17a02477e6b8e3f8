"""Messages that are posted: answered once they are on the device, refused by status and reason."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import itertools
import json
import resource
import socket
import ssl
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.errors import IntakeError
from streamjoin_ds.spool.address import Address, Secrets
from streamjoin_ds.spool.http_body import JSON_TYPE, BodyError, Tally, inflating, payloads_of
from streamjoin_ds.spool.http_crowd import HttpLimits, Turns
from streamjoin_ds.spool.http_server import HttpIntake
from streamjoin_ds.spool.segment import MAX_PAYLOAD_BYTES
from streamjoin_ds.spool.writer import Counts, SpoolWriter
from tests.spool.http_crowd import Outcome, crowd
from tests.spool.http_fuzz import fuzz_parser, fuzz_sockets, fuzz_tls
from tests.spool.spools import Clock, certificate_of, held


class Serving:
    """A server in a thread, and what it counts."""

    def __init__(self, folder: Path, secrets: Secrets, scheme: str = "http", **options: Any) -> None:
        self.counts, self.is_on = Counts(), True
        self.writer = SpoolWriter(folder)
        address = Address(scheme, "127.0.0.1", 0, "/in")
        self.intake = HttpIntake(address, secrets, self.writer, self.counts, lambda: self.is_on, **options)
        self.thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            self.intake.run()
        except BaseException as error:
            self.error = error

    def post(self, body: bytes, path: str = "/in", **headers: str) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.intake.port, timeout=30)
        connection.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data else {}


@contextlib.contextmanager
def serving(folder: Path, secrets: Secrets | None = None, scheme: str = "http", **options: Any) -> Iterator[Serving]:
    server = Serving(folder, secrets or Secrets(), scheme, **options)
    server.thread.start()
    try:
        yield server
    finally:
        server.is_on = False
        server.thread.join()
        server.writer.close()


def test_lines_are_messages_and_one_json_is_one(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.post(b'{"a": 1}\n\n{"a": 2}\r\n{"a": 3}') == (200, {"messages": 3, "first": 0})
        many = b'{\n "a": 4\n}'
        assert server.post(many, "/in?x=1", Content_Type="application/json; charset=utf-8")[1]["first"] == 3
    assert held(tmp_path) == [(k, b"/in", b'{"a": %d}' % (k + 1)) for k in range(3)] + [(3, b"/in", many)]
    assert (server.counts.messages, server.counts.refused) == (4, 0)


def test_what_gateways_send_is_taken_apart(tmp_path: Path) -> None:
    json_type = {"Content_Type": "application/json"}
    with serving(tmp_path) as server:
        assert server.post(b'[{"a": 1.50}, {"b": [2, "]"]}\n]', **json_type) == (200, {"messages": 2, "first": 0})
        assert server.post(gzip.compress(b'{"a": 3}\n{"a": 4}'), Content_Encoding="gzip")[1]["messages"] == 2
        two = gzip.compress(b'{"a": 5}\n') + gzip.compress(b'{"a": 6}')
        assert server.post(two, Content_Encoding="GZIP")[1]["first"] == 4
        assert server.post(zlib.compress(b'[{"a": 7}]'), Content_Encoding="deflate", **json_type)[0] == 200
        assert server.post(b"[]", **json_type) == (200, {"messages": 0})
        assert server.post(b"{}", Content_Encoding="br")[0] == 415
        assert server.post(b"{}", Content_Encoding="gzip")[0] == 400
        assert server.post(two[:-3], Content_Encoding="gzip")[0] == 400
        assert server.post(gzip.compress(b" " * (MAX_PAYLOAD_BYTES + 1)), Content_Encoding="gzip")[0] == 413
    expected = [b'{"a": 1.50}', b'{"b": [2, "]"]}', *(b'{"a": %d}' % number for number in range(3, 8))]
    assert [payload for _, _, payload in held(tmp_path)] == expected
    assert (server.counts.messages, server.counts.refused) == (7, 4)


@pytest.mark.parametrize(
    "body",
    [
        b"[1, 2]",
        b'[{"a": 1},]',
        b'[{"a": 1}',
        b'[{"a": 1} {"a": 2}]',
        b'[{"a": 1}] x',
        b"[[{}]]",
        b"poison",
        b"[" * 9_000,
    ],
)
def test_what_is_no_list_of_objects_is_one_message(body: bytes) -> None:
    assert payloads_of(body, "application/json") == [body]


def test_requests_that_come_together_are_all_kept_and_share_syncs(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []
    with serving(tmp_path) as server:

        def send(sender: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", server.intake.port, timeout=60)
            for number in range(20):
                connection.request("POST", "/in", b'{"s": %d, "n": %d}' % (sender, number))
                answer = connection.getresponse()
                assert answer.status == 200
                answers.append(json.loads(answer.read()))

        threads = [threading.Thread(target=send, args=(sender,)) for sender in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.counts.syncs <= 160
    assert sorted(answer["first"] for answer in answers) == [*range(160)]
    found = [json.loads(payload) for _, _, payload in held(tmp_path)]
    for sender in range(8):
        assert [each["n"] for each in found if each["s"] == sender] == [*range(20)]


def test_what_cannot_be_taken_is_refused_by_status(tmp_path: Path) -> None:
    with serving(tmp_path, Secrets(token="sEcReT")) as server:
        right = {"Authorization": "Bearer sEcReT"}
        assert server.post(b"{}")[0] == 401
        assert server.post(b"{}", Authorization="Bearer no")[0] == 401
        assert server.post(b"{}", "/other", **right)[0] == 404
        assert server.post(b"\n \n", **right)[0] == 400
        assert server.post(b"", **right, Content_Length=str(1 << 40))[0] == 413
        assert server.post(b"", **right, Content_Length="x")[0] == 400
        assert server.post(b"", **right, Content_Length="9" * 4_300)[0] == 400
        connection = http.client.HTTPConnection("127.0.0.1", server.intake.port, timeout=30)
        connection.request("GET", "/in")
        assert connection.getresponse().status == 405
        assert server.post(b"{}", **right)[0] == 200
    assert server.counts.refused == 8
    assert len(held(tmp_path)) == 1


def test_a_spool_that_cannot_be_written_is_answered_as_such_and_ends_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as server:

        def fails(messages: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(server.writer, "append", fails)
        assert server.post(b"{}")[0] == 503
        server.thread.join(30)
        assert isinstance(server.error, OSError)


def test_https_needs_its_certificate_and_a_port_in_use_is_named(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path / "a") as writer:
        with pytest.raises(IntakeError, match="https:// needs a certificate"):
            HttpIntake(Address("https", "127.0.0.1", 0, "/"), Secrets(), writer, Counts(), lambda: False)
        secrets = Secrets(certificate_file=str(tmp_path / "none"))
        with pytest.raises(IntakeError, match="cannot be read"):
            HttpIntake(Address("https", "127.0.0.1", 0, "/"), secrets, writer, Counts(), lambda: False)
        with serving(tmp_path / "b") as server, pytest.raises(IntakeError, match="cannot be listened at"):
            HttpIntake(Address("http", "127.0.0.1", server.intake.port, "/"), Secrets(), writer, Counts(), bool)


def test_https_takes_messages(tmp_path: Path) -> None:
    certificate, key = certificate_of(tmp_path)
    with serving(tmp_path / "s", Secrets(certificate_file=certificate, key_file=key), "https") as server:
        context = ssl.create_default_context(cafile=certificate)
        connection = http.client.HTTPSConnection("localhost", server.intake.port, timeout=30, context=context)
        connection.request("POST", "/in", b"{}")
        assert connection.getresponse().status == 200
    assert len(held(tmp_path / "s")) == 1


def test_messages_are_bounded_before_they_are_made(tmp_path: Path) -> None:
    """Two bytes of a body became 650 in memory, 32 644 bytes of gzip 10.5 GB."""
    lines = gzip.compress(b"1\n" * 4_000_000)
    members = gzip.compress(b"") * 100_000 + gzip.compress(b'{"a": 1}')
    listed = b"[" + b"{}," * 200_000 + b"{}]"
    with serving(tmp_path) as server:
        assert server.post(lines, Content_Encoding="gzip")[0] == 413
        assert server.post(members, Content_Encoding="gzip")[0] == 413
        assert server.post(listed, Content_Type="application/json")[0] == 413
        assert server.post(b'{"a": 1}\n' * 50_000)[1]["messages"] == 50_000
        large = b'{"a": "' + b"x" * (20 << 20) + b'"}'
        assert server.post(gzip.compress(large, 1), Content_Encoding="gzip")[1]["messages"] == 1
    assert len(held(tmp_path)) == 50_001


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"a": 1', "application/json"),
        (b"[1, 2]", "application/json"),
        (b"a=1&b=2", "application/x-www-form-urlencoded"),
        (b"weather,site=a x=20.5 1700000000000000000", "text/plain"),
    ],
)
def test_what_no_stream_can_read_is_refused_unless_anything_is_accepted(tmp_path: Path, body: bytes, kind: str) -> None:
    with serving(tmp_path / "a") as server:
        status, facts = server.post(body, Content_Type=kind)
        assert (status, "no message of the body is a JSON object" in facts["error"]) == (400, True)
        assert server.post(body + b'\n{"a": NaN}')[1]["messages"] == 2  # what can be read makes the rest a reject
    with serving(tmp_path / "b", accept="anything") as server:
        assert server.post(body, Content_Type=kind)[0] == 200
    assert [payload for _, _, payload in held(tmp_path / "b")] == [body]


def test_line_protocol_is_taken_as_influxdb_takes_it(tmp_path: Path) -> None:
    """Telegraf and the clients of InfluxDB post to these paths, in these precisions, and want 204."""
    with serving(tmp_path, Secrets(token="t"), accept="influx") as server:
        as_v2, as_v1 = {"Authorization": "Token t"}, {"Authorization": "Bearer t"}
        lines = b'weather,site=a\\ b x=20.5,s="at 7" 1709629207120\nweather x=1\nweather x=2 -7\r\n# no\n'
        assert server.post(lines, "/in/api/v2/write?org=o&bucket=b&precision=ms", **as_v2) == (204, {})
        assert server.post(b"m x=1i 28493820\n", "/in/write?db=d&precision=m", **as_v1) == (204, {})
        packed = gzip.compress(b"m x=3i 5\n")
        assert server.post(packed, "/in", Content_Encoding="gzip", Content_Type="application/json", **as_v2)[0] == 204
        for body, path, status in (
            (lines, "/in/write?precision=fortnights", 400),
            (lines, "/in/query", 404),
            (b'{"a": 1}', "/in/write", 400),
            (b"", "/in/write", 400),
        ):
            assert server.post(body, path, **as_v2)[0] == status
        assert server.post(lines, "/in/write", Authorization="Token x")[0] == 401
    assert [(topic, payload) for _, topic, payload in held(tmp_path)] == [
        (b"/in", b'weather,site=a\\ b x=20.5,s="at 7" 1709629207120000000'),
        (b"/in", b"weather x=1"),
        (b"/in", b"weather x=2 -7000000"),
        (b"/in", b"# no"),
        (b"/in", b"m x=1i 1709629200000000000"),
        (b"/in", b"m x=3i 5"),
    ]


def test_a_pack_of_senml_stays_one_message_and_lines_are_lines_whatever_their_type_says(tmp_path: Path) -> None:
    pack = b'[{"bn": "urn:dev:7:", "bt": 1709629207, "n": "temp", "v": 19.5},\n {"n": "hum", "v": 40}]'
    with serving(tmp_path / "json") as server:
        assert server.post(pack, Content_Type="application/senml+json") == (200, {"messages": 1, "first": 0})
        assert server.post(pack, Content_Type="application/json")[1]["messages"] == 2
    with serving(tmp_path / "senml", accept="senml") as server:
        assert server.post(pack)[1]["messages"] == server.post(b'{"n": "a", "v": NaN}')[1]["messages"] == 1
        assert server.post(b"[1]")[0] == server.post(b"a b")[0] == 400
    assert [payload for _, _, payload in held(tmp_path / "senml")] == [pack, b'{"n": "a", "v": NaN}']
    with serving(tmp_path / "lines", accept="lines") as server:
        assert server.post(b'{"a": 1}\n{"a": 2}', Content_Type="application/json")[1]["messages"] == 2
        assert server.post(pack.replace(b"\n", b""), Content_Type="application/senml+json")[0] == 400
    with serving(tmp_path / "odd") as server:  # a type of the sender's own chooses no kind
        assert server.post(b'{"a": 1}\n{"a": 2}', Content_Type="pack")[1]["messages"] == 2
        assert server.post(b'{"a": 1}', Content_Type="influx/x")[0] == 200


def test_an_address_that_others_reach_needs_a_token_or_tls_or_open(tmp_path: Path) -> None:
    address = Address("http", "0.0.0.0", 0, "/in")
    with SpoolWriter(tmp_path) as writer:
        with pytest.raises(IntakeError, match="others can reach"):
            HttpIntake(address, Secrets(), writer, Counts(), lambda: False)
        HttpIntake(address, Secrets(token="t"), writer, Counts(), lambda: False).run()
        HttpIntake(address, Secrets(), writer, Counts(), lambda: False, is_open=True).run()


def test_half_bodies_stop_nobody_and_connections_make_room_for_others(tmp_path: Path) -> None:
    limits = HttpLimits(connections=16, small_bytes=1_000, large_bytes=32 << 20)
    with serving(tmp_path, limits=limits) as server, contextlib.ExitStack() as links:
        for number in range(48):
            link = links.enter_context(socket.create_connection(("127.0.0.1", server.intake.port)))
            size = 500 if number % 2 else 32 << 20
            link.sendall(b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{" % size if number % 3 else b"")
        assert server.post(b'{"a": 1}') == (200, {"messages": 1, "first": 0})
    assert len(held(tmp_path)) == 1


def test_small_bodies_do_not_wait_behind_large_ones(tmp_path: Path) -> None:
    with serving(tmp_path) as server, contextlib.ExitStack() as links:
        for _ in range(8):  # the first one has its room, the others wait for it
            link = links.enter_context(socket.create_connection(("127.0.0.1", server.intake.port)))
            link.sendall(b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{" % (32 << 20))
        body = b'{"a": "' + b"x" * 200_000 + b'"}'
        connection = http.client.HTTPConnection("127.0.0.1", server.intake.port, timeout=4)  # the first one has 5 s
        connection.request("POST", "/in", body)
        assert connection.getresponse().status == 200
    assert len(held(tmp_path)) == 1


def test_a_body_of_too_many_messages_is_refused_before_the_rest_comes(tmp_path: Path) -> None:
    with serving(tmp_path) as server, socket.create_connection(("127.0.0.1", server.intake.port), timeout=30) as link:
        link.sendall(b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (32 << 20) + b"1\n" * 100_001)
        assert link.recv(1 << 16).startswith(b"HTTP/1.1 413")
    bomb = inflating(gzip.compress(b"1\n" * 16_000_000), "gzip", Tally("", 100_000))
    with pytest.raises(BodyError, match="100000 lines"):
        list(itertools.islice(bomb, 2))


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_messages_are_counted_alike_wherever_a_body_is_cut(size: int) -> None:
    for body, kind, count in (
        (b"1\r\n\r\n2\n\r3\r" * 9, "", 45),
        (b' \n[{"a": {}},{}]', JSON_TYPE, 3),
        (b' {"a": [{},{}]}', JSON_TYPE, 0),
    ):
        pieces = [body[place : place + size] for place in range(0, len(body), size)]
        _count(pieces, Tally(kind, count))
        if count:
            with pytest.raises(BodyError):
                _count(pieces, Tally(kind, count - 1))


def _count(pieces: list[bytes], tally: Tally) -> None:
    for piece in pieces:
        tally.add(piece)


def test_all_of_a_burst_of_connections_are_heard(tmp_path: Path) -> None:
    """One that does not fit in the queue is not: its sender waits for 1 s, then 2 s, 4 s, 8 s."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 1_500
    if hard < 2 * count or int(Path("/proc/sys/net/core/somaxconn").read_text()) < 2 * count:
        pytest.skip("this machine has no room for so many connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count), hard))
    try:
        with SpoolWriter(tmp_path) as writer, contextlib.ExitStack() as links:
            address = Address("http", "127.0.0.1", 0, "/in")
            intake = HttpIntake(address, Secrets(), writer, Counts(), lambda: False)
            for _ in range(count):
                links.enter_context(socket.create_connection(("127.0.0.1", intake.port), timeout=0.9))
            intake.run()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_small_bodies_that_stay_half_make_room_for_others(tmp_path: Path) -> None:
    limits = HttpLimits(held_bytes=100_000)
    with serving(tmp_path, limits=limits) as server, contextlib.ExitStack() as links:
        first = links.enter_context(socket.create_connection(("127.0.0.1", server.intake.port), timeout=30))
        for link in (first, *(socket.create_connection(("127.0.0.1", server.intake.port)) for _ in range(3))):
            links.enter_context(link)
            link.sendall(b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + b"x" * 30_000)
        assert first.recv(1 << 16).startswith(b"HTTP/1.1 503")
        assert server.post(b'{"a": 1}')[0] == 200


def test_work_that_can_wait_goes_round_and_rests_in_a_crowd() -> None:
    clock, done, rests = Clock(0.0), list[str](), list[float]()

    def step(name: str, takes_s: float, left: int) -> None:
        done.append(name)
        clock.now += takes_s
        if left > 1:
            turns.add(lambda: step(name, takes_s, left - 1))

    class Loop(asyncio.SelectorEventLoop):
        def call_later(self, delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
            rests.append(round(delay, 3))
            return super().call_later(0.0, *arguments, **options)

    async def all_of_it(is_crowded: bool) -> None:
        nonlocal turns
        turns = Turns(clock, lambda: is_crowded)
        turns.add(lambda: step("heavy", 0.2, 3))
        turns.add(lambda: step("light", 0.001, 3))
        while len(done) < 6:
            await asyncio.sleep(0)

    turns = Turns(clock, bool)
    for is_crowded in (False, True):
        with contextlib.closing(Loop()) as loop:
            loop.run_until_complete(all_of_it(is_crowded))
        assert done == ["heavy", "light"] * 3
        done.clear()
    assert rests == [0.0, 0.0, 0.0, 0.2, 0.201, 0.201]


def test_tls_takes_half_closes_beside_half_handshakes(tmp_path: Path) -> None:
    certificate, key = certificate_of(tmp_path)
    context = ssl.create_default_context(cafile=certificate)
    secrets = Secrets(certificate_file=certificate, key_file=key)
    with serving(tmp_path / "s", secrets, "https") as server, contextlib.ExitStack() as links:
        place = ("127.0.0.1", server.intake.port)
        for data in (b"", bytes.fromhex("16030100a5010000a10303"), b"GET / HTTP/1.1\r\n\r\n") * 100:
            links.enter_context(socket.create_connection(place)).sendall(data)
        with context.wrap_socket(socket.create_connection(place, timeout=30), server_hostname="localhost") as link:
            body = b'{"a": "' + b"x" * 100_000 + b'"}'
            link.sendall(b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            socket.socket.shutdown(link, socket.SHUT_WR)  # its own would end TLS too
            assert link.recv(1 << 16).startswith(b"HTTP/1.1 200")
        with context.wrap_socket(socket.create_connection(place, timeout=30), server_hostname="localhost") as link:
            link.sendall(b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n" + b"x" * 100_000)
            assert link.recv(1 << 16).startswith(b"HTTP/1.1 400"), "though much is unread"
            assert link.recv(1 << 16) == b"", "TLS ended in order"
    assert len(held(tmp_path / "s")) == 1


def test_chunks_pipelined_requests_and_expectations_are_answered(tmp_path: Path) -> None:
    head = b"POST /in HTTP/1.1\r\nHost: x\r\n"
    chunks = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"1\r\n%c\r\n" % byte for byte in b'{"a": 1}')
    expecting = head + b"Expect: 100-continue\r\nContent-Length: 8\r\n\r\n"
    with serving(tmp_path) as server, socket.create_connection(("127.0.0.1", server.intake.port), timeout=30) as link:
        link.sendall(chunks + b"0\r\n\r\n" + head + b'Content-Length: 8\r\n\r\n{"a": 2}' + expecting)
        found = b""
        while b"100 Continue" not in found and b"HTTP/1.1 100" not in found:
            found += link.recv(4_096)
        link.sendall(b'{"a": 3}')
        while found.count(b'"messages"') < 3:
            found += link.recv(4_096)
    assert [payload for _, _, payload in held(tmp_path)] == [b'{"a": %d}' % number for number in (1, 2, 3)]


@pytest.mark.slow
def test_a_slice_of_the_fuzz(tmp_path: Path) -> None:
    assert fuzz_parser(500, 7)["200"] > 50
    assert fuzz_tls(200, 7, tmp_path)["200"] > 50
    outcomes, peak_bytes, _ = fuzz_sockets(500, 8, tmp_path / "spool")
    assert outcomes["200"] > 50
    assert peak_bytes < 256 << 20


@pytest.mark.slow
@pytest.mark.parametrize("has_tls", [False, True])
def test_good_senders_are_answered_beside_a_hundred_bad_ones(tmp_path: Path, has_tls: bool) -> None:
    check_crowd(crowd(tmp_path / "spool", 100, 4.0, has_tls=has_tls))


@pytest.mark.campaign
@pytest.mark.parametrize("has_tls", [False, True])
def test_good_senders_are_answered_beside_a_thousand_bad_ones(tmp_path: Path, has_tls: bool) -> None:
    check_crowd(crowd(tmp_path / "spool", 1_000, 60.0, has_tls=has_tls))


def check_crowd(outcome: Outcome) -> None:
    print(outcome)
    assert outcome.sent.total() >= 100
    assert len(outcome.waits_s) > 20
    assert not outcome.failures
    assert outcome.peak_bytes < 256 << 20
    assert max(outcome.waits_s) < 2.0
    assert outcome.end_s < 10.0
