"""Readings above the threshold that holds for their sensor at their time: a stream and a table.

    spark-submit examples/thresholds.py READINGS_FOLDER THRESHOLDS_TABLE ALARMS_TABLE CHECKPOINT

READINGS_FOLDER grows (CSV: ts, sensor, value). THRESHOLDS_TABLE is a Delta table or a file: sensor, most, valid_from,
valid_to; the last is null where the threshold still holds. Who changes it changes what the next batch is held against.
"""

import argparse

from pyspark.sql import SparkSession

from streamjoin_ds import Stream, StreamJoin, Table


def alarms(readings: str, thresholds: str) -> StreamJoin:
    """Return the join: one result for each reading above a threshold that held at the reading's time."""
    return StreamJoin(
        [Stream("r", readings, time="ts", delay="30s")],
        on=[
            "r.sensor = t.sensor AND r.value > t.most",
            "r.ts >= t.valid_from AND (t.valid_to IS NULL OR r.ts < t.valid_to)",
        ],
        select=["r.ts", "r.sensor", "r.value", "t.most"],
        tables=[Table("t", thresholds, refresh="1m")],
    )


def main() -> None:
    """Run the join until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("readings", "thresholds", "table", "checkpoint"):
        parser.add_argument(name)
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("thresholds").getOrCreate()
    join = alarms(arguments.readings, arguments.thresholds)
    join.start(spark, to=arguments.table, checkpoint=arguments.checkpoint, trigger="1s").awaitTermination()


if __name__ == "__main__":
    main()
