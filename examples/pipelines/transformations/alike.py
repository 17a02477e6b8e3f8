"""The flights of Kennedy and Newark that were alike, as a streaming table of a declarative pipeline.

A pipeline lets no query function look at a DataFrame's schema, and a join must. So the join is made outside of it.
"""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from streamjoin_ds import Stream, StreamJoin

FOLDER = Path(__file__).resolve().parents[1]
DDL = "ts TIMESTAMP, carrier STRING, flight BIGINT, dest STRING, delay BIGINT, distance BIGINT, air_time BIGINT"

reader = SparkSession.active().readStream.schema(DDL).option("header", True)
frames = {
    stream: reader.csv(f"{FOLDER}/{airport}*.csv.gz").withWatermark("ts", "0 seconds")
    for stream, airport in {"k": "kennedy", "n": "newark"}.items()
}
join = StreamJoin(
    [Stream("k"), Stream("n")],
    on="abs(k.distance - n.distance) <= 10 AND abs(k.air_time - n.air_time) <= 5 AND abs(k.delay - n.delay) <= 5",
    window="15m",
)
results = join.dataframe(frames)


@dp.table
def alike() -> DataFrame:
    """Return the pairs."""
    return results
