"""Inputs as people have them, a small one of each family, and the first event times that are right.

An input may be several files. `times` are those of the first records, in their order, at UTC unless the input says
another zone. `guessed` says that the values alone do not tell them, so a proposal must say that it is a guess.
"""

# ruff: noqa: E501 - an input stands in one line
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

__all__ = ["INPUTS", "Input"]


@dataclass(frozen=True)
class Input:
    """One input: how it is written into a folder, and what is right."""

    name: str
    content: bytes | Callable[[Path], None]
    times: tuple[str, ...]
    guessed: bool = False
    columns: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        """Write the input, and return its path."""
        path = folder / self.name
        if callable(self.content):
            self.content(path)
        else:
            path.write_bytes(self.content)
        return path


def _text(name: str, text: str, *times: str, guessed: bool = False, encoding: str = "utf-8", **more: Any) -> Input:
    return Input(name, text.encode(encoding), times, guessed, **more)


def _lines(name: str, *records: Any, times: tuple[str, ...], guessed: bool = False, **more: Any) -> Input:
    text = "".join(json.dumps(record) + "\n" for record in records)
    return Input(name, text.encode(), times, guessed, **more)


def _parquet(**columns: pa.Array) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(columns), path)


NINE = "2024-03-05T09:00:07Z"
_AT = ("2024-03-05T09:00:07Z", "2024-03-05T09:00:17Z")
_NAIVE = pa.array([1_709_629_207_000_000, 1_709_629_217_000_000], pa.timestamp("us"))
_ZONED = _NAIVE.cast(pa.timestamp("us", tz="UTC"))
_X = pa.array([19.18, 20.1])

CLOCKS = [
    _text("ais.csv", "# Timestamp,MMSI,SOG\n05/03/2024 09:00:07,219000001,19.18\n05/03/2024 09:00:17,219000001,20.1\n", *_AT, guessed=True),
    _text("uci.csv", "Date;Time;T\n16/12/2006;17:24:00;19,18\n16/12/2006;17:25:00;?\n", "2006-12-16T17:24:00Z", "2006-12-16T17:25:00Z"),
    _text("sbs.csv", "MSG,3,1,1,40621D,1,2024/03/05,09:00:07.120,2024/03/05,09:00:07.120,,38000,,,51.5,-0.1,,,0,0,0,0\nMSG,3,1,1,40621D,1,2024/03/05,09:00:17.120,2024/03/05,09:00:17.120,,38000,,,51.6,-0.1,,,0,0,0,0\n", "2024-03-05T09:00:07.12Z", "2024-03-05T09:00:17.12Z"),
    _text("half.csv", "at,x\n03/05/2024 09:00:07 AM,1.5\n03/05/2024 09:00:17 AM,2.5\n", *_AT, guessed=True),
    _text("half_sure.csv", "at,x\n03/25/2024 09:00:07 PM,1.5\n03/25/2024 09:00:17 PM,2.5\n", "2024-03-25T21:00:07Z"),
    _text("german.csv", "Zeit;x\n05.03.2024 09:00:07,120;1,5\n05.03.2024 09:00:17,120;2,5\n", "2024-03-05T09:00:07.12Z", guessed=True),
    _text("comma.csv", 'ts;x\n2024-03-05 09:00:07,120;1\n2024-03-05 09:00:17,120;2\n', "2024-03-05T09:00:07.12Z"),
    _text("utc.csv", "ts,x\n2024-03-05 09:00:07 UTC,1\n2024-03-05 09:00:17 UTC,2\n", *_AT),
    _text("offset.csv", "ts,x\n2024-03-05 10:00:07 +0100,1\n2024-03-05 10:00:17 +0100,2\n", *_AT),
    _text("basic.csv", "ts,x\n20240305T090007Z,1\n20240305T090017Z,2\n", *_AT),
    _text("doy.csv", "year,day,hhmm,x\n2024,65,900,1\n2024,65,915,2\n", "2024-03-05T09:00:00Z", "2024-03-05T09:15:00Z"),
    _text("digits.csv", "time,x\n202403050900,1\n202403050915,2\n", "2024-03-05T09:00:00Z", "2024-03-05T09:15:00Z"),
    _text("gnss.csv", "week,sow,x\n2304,205225,1\n2304,205235,2\n", *_AT),
    _text("excel.csv", "time,x\n45356.375081,1\n45356.375197,2\n", "2024-03-05T09:00:06.9984Z", guessed=True),
    _text("labview.csv", "t,x\n3792474007,1\n3792474017,2\n", *_AT, guessed=True),
    _text("seconds.csv", "ts,x\n1709629207,1\n1709629217,2\n", *_AT, guessed=True),
    _text("millis.csv", "id,ts,x\n1,1709629207000,1\n2,1709629217000,2\n", *_AT, guessed=True),
    _text("berlin.csv", "ts,x\n2024-10-27 02:20:00,1\n2024-10-27 02:40:00,2\n2024-10-27 02:00:00,3\n2024-10-27 02:20:00,4\n2024-10-27 02:40:00,5\n", "2024-10-27T00:20:00Z", "2024-10-27T00:40:00Z", "2024-10-27T01:00:00Z", guessed=True),
    _text("hourly.csv", "ts,x\n2024-10-27 01:30:00,1\n2024-10-27 02:30:00,2\n2024-10-27 02:30:00,3\n2024-10-27 03:30:00,4\n", "2024-10-26T23:30:00Z", "2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z", guessed=True),
    _text("forms.csv", "ts,x\n2024-03-05 09:00:07,1\n25/03/2024 09:00:17,2\n2024-03-26 09:00:27,3\n27/03/2024 09:00:37,4\n", NINE, "2024-03-25T09:00:17Z", "2024-03-26T09:00:27Z"),
    _text("three_forms.csv", "ts,x\n05.03.2024 09:00,1\n05-Mar-2024 09:10:00,2\n2024-03-05T09:20:00Z,3\n05.03.2024 09:30,4\n05.03.2024 09:40,5\n", "2024-03-05T09:00:00Z", "2024-03-05T09:10:00Z", "2024-03-05T09:20:00Z", guessed=True),
    _text("syslog-20240305.csv", "time,host,x\nMar  5 09:00:07,a,1\nMar  5 09:00:17,b,2\n", *_AT, guessed=True),
    _text("app 2024.csv", "ts,host,x\nMar  5 09:00:07,a,1\nMar  5 09:00:17,b,2\n", *_AT, guessed=True),
    _text("messages-2024.log", "Mar  5 09:00:07 a app[1]: x\nMar  5 09:00:17 b app[22]: y\nMar  5 09:00:27 b app[3]: z\n", *_AT, guessed=True),
    _text("logcat_2024.txt", "at;level\n03-05 09:00:07.120;I\n03-05 09:00:17.120;W\n", "2024-03-05T09:00:07.12Z", "2024-03-05T09:00:17.12Z", guessed=True),
    Input("naive.parquet", _parquet(ts=_NAIVE, x=_X), _AT, guessed=True),
    Input("zoned.parquet", _parquet(at=_ZONED, x=_X), _AT),
    Input("texts.parquet", _parquet(when=pa.array(["05/03/2024 09:00:07", "25/03/2024 09:00:17"]), x=_X), (NINE, "2024-03-25T09:00:17Z")),
    Input("epoch.parquet", _parquet(ts=pa.array([1_709_629_207, 1_709_629_217]), x=_X), _AT, guessed=True),
    _text("HR.csv", "1709629207.0\n4.0\n61.5\n62.0\n62.5\n", NINE, "2024-03-05T09:00:07.25Z", guessed=True),
    _text("month.csv", "When,v\n5 Mar 2024 09:00:07,1\n5 Mar 2024 09:00:17,2\n", *_AT),
    _text("access.csv", "t;code\n05/Mar/2024:09:00:07 +0000;200\n05/Mar/2024:09:00:17 +0000;404\n", *_AT),
]  # fmt: skip

SHAPES = [
    _text("geolife.plt", "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n39.9,116.3,0,-777,45356.375081,2024-03-05,09:00:07\n39.9,116.3,0,-777,45356.375197,2024-03-05,09:00:17\n", *_AT),
    _text("toa5.dat", '"TOA5","Tower","CR1000","1234","CR1000.Std.25","CPU:prog.CR1","9","Table"\n"TIMESTAMP","RECORD","AirTC"\n"TS","RN","Deg C"\n"","","Avg"\n"2024-03-05 09:00:07",0,19.18\n"2024-03-05 09:00:17",1,"NAN"\n', *_AT),
    _text("ndbc.txt", "#YY  MM DD hh mm WDIR WSPD\n#yr  mo dy hr mn degT m/s\n2024 03 05 09 20  120  5.0\n2024 03 05 09 10   MM  5.1\n2024 03 05 09 00  130   MM\n", "2024-03-05T09:20:00Z", "2024-03-05T09:10:00Z"),
    _text("isd.txt", "2024 03 05 09   192 -9999 10132\n2024 03 05 10   180   100 10132\n", "2024-03-05T09:00:00Z", "2024-03-05T10:00:00Z"),
    _text("fixed.txt", "STN  DATE             TEMP PRCP\n0001 2024-03-05 09:00 19.1  0.0\n0001 2024-03-05 09:10       1.0\n0001 2024-03-05 09:20 20.1\n0001 2024-03-05 09:30 20.2  0.5\n", "2024-03-05T09:00:00Z", "2024-03-05T09:10:00Z"),
    _text("notes.csv", "# made by a logger\n# at a place\nts,x\n2024-03-05T09:00:07Z,1\n# a pause\n2024-03-05T09:00:17Z,2\n", *_AT),
    _text("usgs.txt", "# U.S.\n#\nagency_cd\tsite_no\tdatetime\tv\n5s\t15s\t20d\t14n\nUSGS\t0142\t2024-03-05 09:00\t1.0\nUSGS\t0142\t2024-03-05 09:15\t1.1\n", "2024-03-05T09:00:00Z", "2024-03-05T09:15:00Z"),
    _text("twice.csv", "ts,Temp,Temp\n2024-03-05T09:00:07Z,1,2\n2024-03-05T09:00:17Z,2,3\n", *_AT),
    _text("trailing.csv", "ts,x\n2024-03-05T09:00:07Z,1,\n2024-03-05T09:00:17Z,2,\n", *_AT),
    _text("trailing_head.csv", "ts,x,\n2024-03-05T09:00:07Z,1,\n2024-03-05T09:00:17Z,2,\n", *_AT),
    _text("wide.csv", "\ufeffts;x\r\n2024-03-05T09:00:07Z;1\r\n2024-03-05T09:00:17Z;2\r\n", *_AT, encoding="utf-16-le"),
    _text("latin.csv", "ts,Temp °C\n2024-03-05T09:00:07Z,1\n2024-03-05T09:00:17Z,2\n", *_AT, encoding="latin-1", guessed=True),
    _text("mac.csv", "ts,x\r2024-03-05T09:00:07Z,1\r2024-03-05T09:00:17Z,2\r", *_AT),
    _text("flux.csv", '#group,false,false,true,true,false,false,true\n#datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,dateTime:RFC3339,double,string\n#default,mean,,,,,,\n,result,table,_start,_stop,_time,_value,host\n,,0,2024-03-05T00:00:00Z,2024-03-06T00:00:00Z,2024-03-05T09:00:07Z,19.18,a\n,,0,2024-03-05T00:00:00Z,2024-03-06T00:00:00Z,2024-03-05T09:00:17Z,20.1,a\n', *_AT),
    _text("whole.csv", "ts,x\n2024-03-05T09:00:07Z,20\n2024-03-05T09:00:17Z,20.5\n", *_AT),
    _text("thousands.csv", 'ts,x\n2024-03-05T09:00:07Z,"1,234.5"\n2024-03-05T09:00:17Z,"12,345.5"\n', *_AT),
    _text("pipes.log", "2024-03-05T09:00:07Z|a|1.5\n2024-03-05T09:00:17Z|b|2.5\n", *_AT),
]  # fmt: skip

ENVELOPES = [
    _lines("tasmota.json", {"Time": "2024-03-05T10:00:07", "BME280": {"Temperature": 19.18, "Humidity": 40.1}, "TempUnit": "C"}, {"Time": "2024-03-05T10:00:17", "BME280": {"Temperature": 19.2, "Humidity": 40.1}, "TempUnit": "C"}, times=("2024-03-05T10:00:07Z", "2024-03-05T10:00:17Z"), guessed=True),
    _lines("shelly.json", {"src": "plug-1", "method": "NotifyStatus", "params": {"ts": 1709629207.5, "switch:0": {"id": 0, "apower": 19.18}}}, {"src": "plug-1", "method": "NotifyStatus", "params": {"ts": 1709629217.5, "switch:0": {"id": 0, "apower": 19.2}}}, times=("2024-03-05T09:00:07.5Z", "2024-03-05T09:00:17.5Z"), guessed=True),
    _lines("debezium.json", {"payload": {"before": None, "after": {"id": 7, "temp": 19.18}, "op": "c", "ts_ms": 1709629207120}}, {"payload": {"before": None, "after": {"id": 8, "temp": 19.2}, "op": "u", "ts_ms": 1709629217120}}, times=("2024-03-05T09:00:07.12Z", "2024-03-05T09:00:17.12Z"), guessed=True),
    _lines("plc.json", {"timestamp": 1709629207120, "values": [{"id": "ch.dev.t1", "v": 19.18, "q": True, "t": 1709629207000}, {"id": "ch.dev.t2", "v": "on", "q": True, "t": 1709629207001}]}, {"timestamp": 1709629217120, "values": [{"id": "ch.dev.t1", "v": 19.18, "q": True, "t": 1709629217000}, {"id": "ch.dev.t2", "v": "on", "q": True, "t": 1709629217001}]}, times=(NINE, "2024-03-05T09:00:07.001Z", "2024-03-05T09:00:17Z"), guessed=True),
    _lines("senml.json", [{"bn": "urn:dev:7:", "bt": 1709629207, "n": "temp", "u": "Cel", "v": 19.18}, {"n": "hum", "t": -5, "v": 40.1}], [{"bn": "urn:dev:7:", "bt": 1709629217, "n": "temp", "u": "Cel", "v": 19.18}, {"n": "hum", "t": -5, "v": 40.1}], times=(NINE, "2024-03-05T09:00:02Z"), guessed=True),
    _lines("ttn.json", {"end_device_ids": {"device_id": "d7"}, "received_at": "2024-03-05T09:00:07.123456789Z", "uplink_message": {"decoded_payload": {"temp": 19.18}, "rx_metadata": [{"rssi": -97}, {"rssi": -101}]}}, {"end_device_ids": {"device_id": "d7"}, "received_at": "2024-03-05T09:00:17.123456789Z", "uplink_message": {"decoded_payload": {"temp": 19.2}, "rx_metadata": [{"rssi": -97}, {"rssi": -101}]}}, times=("2024-03-05T09:00:07.123456Z", "2024-03-05T09:00:17.123456Z")),
    _text("array.json", '[{"ts": "2024-03-05T09:00:07Z", "x": 1.5},\n{"ts": "2024-03-05T09:00:17Z", "x": 2.5}]\n', *_AT),
    _text("pretty.json", "".join(json.dumps({"ts": at, "x": {"y": 1.5}}, indent=2) + "\n" for at in _AT), *_AT),
    _text("community.json", '{"fields":["time_stamp","pm2.5"],"data":[[1709629207,19.18],[1709629217,20.1]]}\n', *_AT, guessed=True),
    _text("quakes.geojson", json.dumps({"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {"time": ms, "mag": 4.5}, "geometry": {"type": "Point", "coordinates": [7.5, 46.9, 10.0]}} for ms in (1709629207000, 1709629217000)]}), *_AT, guessed=True),
    _lines("logstash.json", *({"@timestamp": at, "host": {"name": "a"}, "temp": 1} for at in _AT), times=_AT),
    _text("notes.csv", 'ts,note,x\n2024-03-05T09:00:07Z,"a\nb, ""c""",1\n2024-03-05T09:00:17Z,"d\ne",2\n', *_AT, columns=("note",)),
    _text("licor.data", "SN:\tIRG4\nDATAH\tDATE\tTIME\tCO2\nDATA\t2024-03-05\t09:00:07:000\t400.1\nDATA\t2024-03-05\t09:00:17:000\t401.1\n", *_AT, guessed=True),
    _text("davis.txt", "\t\tTemp\nDate\tTime\tOut\n-----\n03/05/24\t9:00a\t40.1\n03/05/24\t9:05p\t41.1\n", "2024-03-05T09:00:00Z", "2024-03-05T21:05:00Z", guessed=True),
    _text("hobo.csv", '"Plot Title: Tower"\n"#","Date Time, GMT-05:00","Temp"\n1,03/25/24 04:00:07 AM,20.1\n2,03/25/24 04:00:17 AM,20.2\n', "2024-03-25T09:00:07Z", "2024-03-25T09:00:17Z", guessed=True),
    _text("prices.csv", '"MTU (CET/CEST)","Price"\n"25.03.2024 09:00 - 25.03.2024 10:00","50.1"\n"25.03.2024 10:00 - 25.03.2024 11:00","51.1"\n', "2024-03-25T08:00:00Z", "2024-03-25T09:00:00Z", guessed=True),
    _text("candump.log", "(1709629207.000000) can0 123#DEADBEEF\n(1709629217.000000) can0 123#DEADBE01\n", *_AT, guessed=True),
    _text("argos.csv", "id;date;lat\n7;09:00:07 05-Mar-2024;46.1\n7;09:00:17 05-Mar-2024;46.2\n", *_AT),
    _text("quotes.csv", "<DATE>\t<TIME>\t<OPEN>\n2024.03.05\t09:00:07\t1.5\n2024.03.05\t09:00:17\t1.6\n", *_AT),
    _text("lines.txt", "weather,station=a temp=19.18,hum=40i 1709629207000000000\nweather,station=a temp=19.2,hum=41i 1709629217000000000\n", *_AT),
]  # fmt: skip

_PLAIN = b"ts,x\n2024-03-05T09:00:07Z,1.5\n2024-03-05T09:00:17Z,2.5\n"


def _zipped(path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readings.csv", _PLAIN)


def _tarred(path: Path) -> None:
    import tarfile

    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("readings.csv")
        member.size = len(_PLAIN)
        archive.addfile(member, BytesIO(_PLAIN))


def _gzipped(path: Path) -> None:
    import gzip

    path.write_bytes(gzip.compress(_PLAIN))


def _table() -> pa.Table:
    return arrow_csv.read_csv(BytesIO(_PLAIN))


def _orc(path: Path) -> None:
    from pyarrow import orc

    orc.write_table(_table(), path)


def _feather(path: Path) -> None:
    from pyarrow import feather

    feather.write_feather(_table(), path)


def _arrow(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _table().schema) as writer:
        writer.write_table(_table())


def _avro(path: Path) -> None:
    import fastavro

    kind = {"type": "record", "name": "r", "fields": [{"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}}, {"name": "x", "type": "double"}]}  # fmt: skip
    with path.open("wb") as sink:
        fastavro.writer(sink, kind, [{"ts": 1_709_629_207_000_000, "x": 1.5}, {"ts": 1_709_629_217_000_000, "x": 2.5}])


def _folder(path: Path) -> None:
    for device in ("a", "b"):
        (path / f"device={device}").mkdir(parents=True)
        (path / f"device={device}" / "1.csv").write_bytes(_PLAIN)


CONTAINERS = [
    Input("a.csv.zip", _zipped, _AT),
    Input("a.csv.tar", _tarred, _AT),
    Input("A.CSV", _PLAIN, _AT),
    Input("a.csv.GZ", _gzipped, _AT),
    Input("a.csv.gzip", _gzipped, _AT),
    Input("a.orc", _orc, _AT),
    Input("a.avro", _avro, _AT),
    Input("a.feather", _feather, _AT),
    Input("a.arrow", _arrow, _AT),
    Input("no_ending", _PLAIN, _AT),
    Input("hive", _folder, _AT),
]

INPUTS = [*CLOCKS, *SHAPES, *ENVELOPES, *CONTAINERS]
