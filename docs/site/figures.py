"""The figures of the pages, drawn from small data by the rules that they show.

``python -m docs.site.figures`` writes them into ``docs/images``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise, product
from math import cos, radians
from pathlib import Path

from pyarrow import csv

from docs.site.drawing import Sheet
from streamjoin_ds import Join, JoinEngine, Stream
from streamjoin_ds.cli.demo import demo_join

__all__ = ["FIGURES", "FOLDER"]

FOLDER = Path(__file__).resolve().parents[1] / "images"
DATA = Path(__file__).resolve().parents[2] / "streamjoin_ds" / "_data"


def join() -> Sheet:
    """Draw one tuple with its band and its window, and whom it meets. A second is 6 px, a unit of value 4."""
    sheet = Sheet("Two streams: a tuple of the second meets those of the first that lie in its band and its window")
    left = [(12, 20), (24, 33), (45, 36), (52, 48), (66, 25), (75, 38), (92, 18), (101, 44)]
    right = [(17, 45), (31, 12), (58, 31), (90, 50)]
    (ts, value), window, band = right[2], 20, 10

    def at(second: float, unit: float) -> tuple[float, float]:
        return 60 + second * 6, 225 - unit * 4

    x, y = at(ts - window, value + band)
    sheet.box(x, y, 2 * window * 6, 2 * band * 4)
    sheet.span(x, x + 2 * window * 6, y + 2 * band * 4 + 14, "window: 20 s each way")
    sheet.line((x + 2 * window * 6 + 12, y), (x + 2 * window * 6 + 12, y + 2 * band * 4), colour="area")
    sheet.text(x + 2 * window * 6 + 20, y + band * 4 - 14, "band:", colour="area")
    sheet.text(x + 2 * window * 6 + 20, y + band * 4 + 3, "abs(l.x - r.x) <= 10", colour="area")
    sheet.arrow((60, 225), (705, 225))
    sheet.arrow((60, 225), (60, 12))
    sheet.text(705, 243, "event time", anchor="end")
    sheet.text(50, 22, "value", anchor="end")
    for other in left:
        if abs(other[0] - ts) <= window and abs(other[1] - value) <= band:
            sheet.line(at(ts, value), at(*other), colour="hit", width=2)
    for stream, tuples in (("left", left), ("right", right)):
        for each in tuples:
            sheet.tuple_(*at(*each), stream)
    sheet.tuple_(70, 245, "left")
    sheet.text(82, 249, "stream l")
    sheet.tuple_(160, 245, "right")
    sheet.text(172, 249, "stream r")
    sheet.line((245, 245), (268, 245), colour="hit", width=2)
    sheet.text(275, 249, "a result")
    return sheet


def lateness() -> Sheet:
    """Draw the tuples of a stream in their order of arrival, and the bound below which they are late."""
    sheet = Sheet("A stream's tuples as they arrive: those below the largest time minus the delay are late", 720, 270)
    times, delay = (4, 7, 5, 11, 9, 14, 8, 16, 20, 18, 12, 23, 27, 24), 5

    def at(number: float, second: float) -> tuple[float, float]:
        return 90 + number * 42, 225 - second * 7

    largest = [max(times[: number + 1]) for number in range(len(times))]
    for lag, colour, text in ((0, "faint", "largest time so far"), (delay, "area", "minus the delay of 5 s")):
        steps = [at(number + more, largest[number] - lag) for number in range(len(times)) for more in (0, 1)]
        sheet.line(*steps, colour=colour, width=1.5, dashes="" if lag else "4 3")
        sheet.text(*((590, 215) if lag else (515, 25)), text, colour=colour, anchor="middle")
    sheet.arrow((70, 240), (705, 240))
    sheet.arrow((70, 240), (70, 12))
    sheet.text(705, 258, "order of arrival", anchor="end")
    sheet.text(62, 20, "event", anchor="end")
    sheet.text(62, 36, "time", anchor="end")
    for number, second in enumerate(times):
        is_late = number > 0 and second < largest[number - 1] - delay
        sheet.tuple_(*at(number, second), "left", is_open=is_late)
        if is_late:
            sheet.text(at(number, second)[0], at(number, second)[1] + 20, "late", colour="left", anchor="middle")
    return sheet


def watermark() -> Sheet:
    """Draw two streams, the watermark of the slower one, and the horizon of a tuple. A second is 10 px."""
    sheet = Sheet("The watermark is the smallest of the streams' largest times minus their delays", 720, 250)
    streams = {"left": ((3, 9, 14, 22, 31, 38, 47), 5), "right": ((6, 17, 25, 33), 3)}
    window = 12

    def at(second: float) -> float:
        return 90 + second * 10

    bounds = {name: max(times) - delay for name, (times, delay) in streams.items()}
    low = min(bounds.values())
    sheet.box(90, 20, at(low) - 90, 170, "hit", fill=0.08)
    sheet.text(96, 208, "complete: every result from here is in the table", colour="hit")
    for y, (name, (times, delay)) in zip((60, 120), streams.items(), strict=True):
        sheet.text(80, y + 4, f"stream {name[0]}", colour=name, anchor="end")
        sheet.arrow((90, y), (690, y), colour="faint")
        for second in times:
            sheet.tuple_(at(second), y, name, is_open=second + window < low)
        sheet.span(at(bounds[name]), at(max(times)), y + 12, f"delay {delay} s", colour=name)
    sheet.line((at(low), 14), (at(low), 190), colour="hit", width=2)
    sheet.text(at(low) + 6, 26, "watermark = punctuation", colour="hit")
    kept = min(second for second in streams["left"][0] if second + window >= low)
    sheet.span(at(kept), at(kept + window), 160, f"window {window} s", colour="area")
    sheet.line((at(kept), 66), (at(kept), 160), colour="area", dashes="3 3")
    sheet.text(at(kept + window) + 8, 164, "horizon of this tuple", colour="area")
    sheet.arrow((90, 225), (705, 225))
    sheet.text(705, 243, "event time", anchor="end")
    sheet.tuple_(100, 241, "left", is_open=True)
    sheet.text(112, 245, "forgotten: its horizon has passed")
    return sheet


def layouts() -> Sheet:
    """Draw a grid of cells and ranges of a band attribute, with the way of one tuple of each stream."""
    sheet = Sheet("A grid of two by three cells, and four ranges: where a tuple of each stream goes", 720, 250)
    row, column = 0, 1
    for (i, j), name in zip(product(range(2), range(3)), "012345", strict=True):
        x, y = 90 + j * 65, 60 + i * 65
        hit = (i == row) + (j == column)
        sheet.box(x, y, 60, 60, "hit" if hit == 2 else "left" if i == row else "right" if j == column else "faint",
                  fill=0.25 if hit else 0.05)  # fmt: skip
        sheet.text(x + 30, y + 35, f"cell {name}", anchor="middle")
    sheet.text(185, 22, "grid 2x3: any condition", anchor="middle")
    sheet.tuple_(55, 90, "left")
    sheet.arrow((64, 90), (86, 90), colour="left")
    sheet.tuple_(185, 36, "right")
    sheet.arrow((185, 44), (185, 57), colour="right")
    sheet.text(185, 218, "a pair meets in one cell", colour="hit", anchor="middle")
    sheet.text(185, 236, "copies: 3 of l, 2 of r", colour="faint", anchor="middle")
    begins, key, band = (0, 7, 16, 22, 30), 14.5, 4
    for number, (begin, end) in enumerate(pairwise(begins)):
        meets = begin <= key + band and end > key - band
        holds = begin <= key < end
        sheet.box(370 + begin * 11, 92, (end - begin) * 11 - 4, 60, "hit" if holds else "right" if meets else "faint",
                  fill=0.25 if meets else 0.05)  # fmt: skip
        sheet.text(370 + (begin + end) * 5.5 - 2, 127, f"cell {number}", anchor="middle")
    sheet.text(535, 22, "ranges: a band ties an attribute", anchor="middle")
    sheet.tuple_(370 + key * 11, 172, "left")
    sheet.text(370 + key * 11 + 12, 176, "of the anchor: one range", colour="left")
    sheet.tuple_(370 + key * 11, 70, "right")
    sheet.span(370 + (key - band) * 11, 370 + (key + band) * 11, 46, "", colour="area")
    sheet.text(370 + (key + band) * 11 + 8, 50, "the band", colour="area")
    sheet.text(370 + key * 11 + 12, 75, "of the other: those in reach", colour="right")
    sheet.arrow((370, 200), (705, 200))
    sheet.text(705, 218, "attribute", anchor="end")
    return sheet


def flights() -> Sheet:
    """Draw departures of a morning, and whom one of them meets: the result of the join of the page."""
    sheet = Sheet("Departures from Kennedy and Newark by time and distance, and the box of one of them", 720, 300)
    data = {
        name: csv.read_csv(DATA / "flights" / f"{file}.csv.gz") for name, file in (("k", "kennedy"), ("n", "newark"))
    }
    names = {"k": "left", "n": "right"}
    begin, end, low, high = datetime(2013, 1, 7, 12, tzinfo=timezone.utc), timedelta(minutes=150), 850, 1250
    window, miles = timedelta(minutes=15), 60

    def at(ts: datetime, distance: float) -> tuple[float, float]:
        return 70 + (ts - begin) / end * 630, 255 - (distance - low) / (high - low) * 235

    rows = {
        name: zip(*(table.column(key).to_pylist() for key in ("ts", "distance")), strict=True)
        for name, table in data.items()
    }
    shown = {
        name: [(ts, distance) for ts, distance in each if begin <= ts < begin + end and low < distance < high]
        for name, each in rows.items()
    }
    join = Join([Stream("k"), Stream("n")], f"abs(k.distance - n.distance) <= {miles}", window)
    pairs = JoinEngine(join).push(data).select(["k_ts", "k_distance", "n_ts", "n_distance"]).to_pylist()
    met = Counter((pair["k_ts"], pair["k_distance"]) for pair in pairs)
    inside = [
        (ts, distance)
        for ts, distance in shown["k"]
        if begin + window < ts < begin + end - window and low + miles < distance < high - miles
    ]
    middle = max(inside, key=lambda each: met[each])
    x, y = at(middle[0] - window, middle[1] + miles)
    right, bottom = at(middle[0] + window, middle[1] - miles)
    sheet.box(x, y, right - x, bottom - y)
    for pair in pairs:
        if (pair["k_ts"], pair["k_distance"]) == middle:
            sheet.line(at(*middle), at(pair["n_ts"], pair["n_distance"]), colour="hit", width=2)
    for name, tuples in shown.items():
        for each in tuples:
            sheet.tuple_(*at(*each), names[name])
    sheet.arrow((70, 262), (705, 262))
    sheet.arrow((70, 262), (70, 10))
    for minutes in range(0, 150, 30):
        moment = begin + timedelta(minutes=minutes)
        sheet.text(at(moment, low)[0], 279, f"{moment:%H:%M}", colour="faint", anchor="middle")
    for distance in range(900, high, 100):
        sheet.text(62, at(begin, distance)[1] + 4, str(distance), colour="faint", anchor="end")
    sheet.text(705, 279, "departure, UTC", anchor="end")
    sheet.text(62, 18, "miles", anchor="end")
    return sheet


def vessels() -> Sheet:
    """Draw the ways of yachts in ten minutes, and who was near whom: a part of the result of the demo."""
    sheet = Sheet(
        "Yachts south of Helsinki: their ways in ten minutes, and lines between those that are near", 560, 420
    )
    tables = [csv.read_csv(DATA / "vessels" / f"channel_{name}.csv.gz") for name in ("a", "b")]
    west, south, scale = 24.66, 59.638, 4200  # px a degree of latitude

    def at(latitude: float, longitude: float) -> tuple[float, float]:
        return (longitude - west) * scale * cos(radians(59.7)), 420 - (latitude - south) * scale

    for pair in demo_join(DATA / "vessels").match(*tables, progress=False).to_pylist():
        sheet.line(at(pair["a_lat"], pair["a_lon"]), at(pair["b_lat"], pair["b_lon"]), colour="hit")
    ways: dict[str, list[tuple[float, float]]] = {}
    for row in sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["ts"]):
        place = at(row["lat"], row["lon"])
        if (row["knots"] or 0) > 1 and 0 < place[0] < 560 and 0 < place[1] < 420:
            ways.setdefault(row["vessel"], []).append(place)
    named: list[tuple[float, float]] = []
    for name, way in ways.items():
        x, y = way[-1]
        is_alone = all(abs(x - other_x) > 110 or abs(y - other_y) > 13 for other_x, other_y in named)
        is_left = (x < 160) == is_alone  # where there is room for the name
        sheet.line(*way, colour="left", width=2)
        sheet.tuple_(x, y, "left")
        sheet.text(x - 10 if is_left else x + 10, y + 4, name, anchor="end" if is_left else "start")
        named.append((x, y))
    return sheet


FIGURES: dict[str, Callable[[], Sheet]] = {
    "join": join,
    "lateness": lateness,
    "watermark": watermark,
    "layouts": layouts,
    "flights": flights,
    "vessels": vessels,
}


if __name__ == "__main__":
    for name, draw in FIGURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg())
