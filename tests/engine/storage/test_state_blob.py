"""State blobs: the same state is the same bytes, and no blob is trusted."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
import xxhash

from streamjoin_ds.engine.join_engine import JoinEngine
from streamjoin_ds.engine.storage import state_blob
from streamjoin_ds.engine.window_join import WindowJoin
from streamjoin_ds.errors import (
    FingerprintMismatchError,
    StateCorruptError,
    StateVersionError,
    StreamJoinError,
)
from streamjoin_ds.spec import Join, Stream
from tests.engine.streams import band_join, filled, pairs, tuples


def test_a_restored_join_is_the_same_join() -> None:
    bound = band_join()
    join = filled(bound)
    restored = WindowJoin.restored(bound, join.save())
    assert restored.save() == join.save()
    batch = {s: tuples(bound, s, 200, start_us=4_000_000, seq=5000) for s in (0, 1)}
    expected, found = list(join.push(batch, 4_000_000)), list(restored.push(batch, 4_000_000))
    assert sum(chunk.num_rows for chunk in expected) > 0
    assert [chunk.to_pylist() for chunk in found] == [chunk.to_pylist() for chunk in expected]
    assert restored.save() == join.save()


def test_restored_columns_are_views_of_the_blob() -> None:
    bound = band_join()
    blob = filled(bound, rows=5000).save()
    pool_bytes = pa.total_allocated_bytes()
    restored = WindowJoin.restored(bound, blob)
    assert restored.state_rows > 5000
    assert pa.total_allocated_bytes() - pool_bytes < len(blob) / 10


def test_a_tuple_costs_its_columns_and_no_more() -> None:
    bound = band_join(on="abs(r.x - s.a) <= 10")
    join = WindowJoin(bound)
    list(join.push({0: tuples(bound, 0, 10_000)}))
    # Bytes of a row: _ts, _seq, x and y have 8 each, v has 4.
    assert len(join.save()) < 10_000 * 36 + 4096


def test_same_pushes_same_bytes_whatever_the_arrays_behind_them() -> None:
    bound = band_join()
    table = tuples(bound, 1, 500)
    sliced = pa.concat_tables([table.slice(0, 123), table.slice(123)])
    hidden = table.column("tag").to_pylist()
    rebuilt = table.set_column(4, table.schema.field("tag"), pa.chunked_array([hidden[:50], hidden[50:]], pa.string()))
    blobs = set()
    for variant in (table, sliced, rebuilt, table.combine_chunks()):
        join = WindowJoin(bound)
        list(join.push({1: variant}))
        blobs.add(join.save())
    assert len(blobs) == 1


def test_every_damage_is_named() -> None:
    bound = band_join()
    blob = filled(bound, pushes=2, rows=60).save()
    chooser = random.Random(4)
    places = [*range(80), *(chooser.randrange(len(blob)) for _ in range(800))]
    for place in places:
        damaged = bytearray(blob)
        damaged[place] ^= 1 << chooser.randrange(8)
        with pytest.raises(StateCorruptError):
            WindowJoin.restored(bound, bytes(damaged))
    for length in [*range(40), *(chooser.randrange(len(blob)) for _ in range(100))]:
        with pytest.raises(StateCorruptError):
            WindowJoin.restored(bound, blob[:length])
    with pytest.raises(StateCorruptError):
        WindowJoin.restored(bound, blob + b"\0")
    with pytest.raises(StateCorruptError):
        WindowJoin.restored(bound, b"\x80\x04\x95" + blob[3:])


def test_a_forged_checksum_is_an_error_and_no_crash() -> None:
    bound = band_join()
    blob = filled(bound, pushes=1, rows=60).save()
    chooser = random.Random(5)
    header_end = 32 + struct.unpack_from("<I", blob, 28)[0]
    refused = 0
    for _ in range(300):
        forged = bytearray(blob)
        forged[chooser.randrange(24, header_end)] ^= 1 << chooser.randrange(8)
        forged[8:24] = xxhash.xxh3_128_digest(bytes(forged[24:]))
        try:
            WindowJoin.restored(bound, bytes(forged))
        except StreamJoinError:
            refused += 1
    assert refused > 200  # the others changed a number that any state may have


@pytest.mark.parametrize("name", ["_ts", "_seq", "x"])
def test_a_null_where_a_window_has_none_is_refused(name: str) -> None:
    bound = band_join()
    join = filled(bound, pushes=1, rows=60)
    facts, body = state_blob.opened(bound.fingerprint, join.save())
    parts = state_blob.parts_of(facts, body)
    for stream, rows in enumerate(len(runs) for runs in facts["runs"]):
        assert rows == 1
        schema = join.forms[stream].saved_schema
        if name not in schema.names:
            continue
        tuples = pa.ipc.read_record_batch(parts[stream], schema)
        columns = {field.name: tuples.column(field.name) for field in schema}
        columns[name] = pa.nulls(tuples.num_rows, schema.field(name).type)
        spoilt = [*parts]
        spoilt[stream] = pa.RecordBatch.from_pydict(columns).serialize()
        with pytest.raises(StateCorruptError):
            WindowJoin.restored(bound, state_blob.sealed(bound.fingerprint, facts, spoilt))
    WindowJoin.restored(bound, state_blob.sealed(bound.fingerprint, facts, parts))


def test_an_error_leaves_the_join_as_it_was() -> None:
    bound = band_join()
    join = filled(bound)
    before = join.save()
    with pytest.raises(StateCorruptError):
        join.restore(before[:-1])
    assert join.save() == before


def test_another_join_is_refused() -> None:
    blob = filled(band_join()).save()
    for other in (band_join(window="2s"), band_join(on="abs(r.x - s.a) <= 10")):
        with pytest.raises(FingerprintMismatchError):
            WindowJoin.restored(other, blob)


def test_a_newer_version_is_refused() -> None:
    bound = band_join()
    join = filled(bound)
    facts, body = state_blob.opened(bound.fingerprint, join.save())
    parts = state_blob.parts_of(facts, body)
    newer = state_blob.sealed(bound.fingerprint, facts, parts, state_blob.WINDOW_STATE_VERSION + 1)
    with pytest.raises(StateVersionError):
        WindowJoin.restored(bound, newer)


def test_a_blob_that_lies_askew_in_memory_works() -> None:
    bound = band_join()
    join = filled(bound)
    blob = join.save()
    for offset in (1, 4, 7):
        askew = memoryview(b"\0" * offset + blob)[offset:]
        restored = WindowJoin.restored(bound, askew)
        batch = {0: tuples(bound, 0, 100, start_us=4_000_000)}
        assert pairs(list(restored.push(batch))) == pairs(list(WindowJoin.restored(bound, blob).push(batch)))


def test_an_engine_refuses_the_state_of_its_window_join() -> None:
    schema = {"ts": "int64", "x": "int64"}
    engine = JoinEngine(Join([Stream("a", schema=schema), Stream("b", schema=schema)], "a.x = b.x", "1s"))
    engine.push({"a": [{"ts": 1, "x": 1}]})
    with pytest.raises(StateCorruptError):
        engine.restore(WindowJoin(engine.bound).save())
    again = JoinEngine(engine.bound)
    again.restore(engine.save())
    assert again.push({"b": {"ts": 2, "x": 1}}).num_rows == 1
