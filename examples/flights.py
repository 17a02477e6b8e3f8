"""Which aircraft came near each other: two streams of positions, a band on each coordinate, 15 seconds.

    spark-submit examples/flights.py EASTBOUND.csv.gz WESTBOUND.csv.gz CONFLICTS_TABLE CHECKPOINT

Takes in what the files hold and stops; start it again with the same checkpoint after they grew. The table is Delta:
each row is one pair, and `<table>_punctuations` says up to which event time the pairs are complete.
"""

import argparse

from pyspark.sql import SparkSession

from streamjoin_ds import Stream, StreamJoin


def conflicts(eastbound: str, westbound: str) -> StreamJoin:
    """Return the join: two aircraft within 0.1 degrees of latitude, 0.15 of longitude, 1000 feet, and 15 seconds."""
    return StreamJoin(
        [Stream("e", eastbound, time="ts"), Stream("w", westbound, time="ts")],
        on=[
            "abs(e.latitude - w.latitude) <= 0.1",
            "abs(e.longitude - w.longitude) <= 0.15",
            "abs(e.altitude - w.altitude) <= 1000",
        ],
        window="15s",
        select=["e.ts", "e.icao24", "e.callsign", "e.altitude", "w.ts", "w.icao24", "w.callsign", "w.altitude"],
    )


def main() -> None:
    """Run the join on the files named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("eastbound", "westbound", "table", "checkpoint"):
        parser.add_argument(name)
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("flights").getOrCreate()
    query = conflicts(arguments.eastbound, arguments.westbound).start(
        spark, to=arguments.table, checkpoint=arguments.checkpoint, available_now=True, max_rows_per_batch=50_000
    )
    query.awaitTermination()
    print(f"conflicts in {arguments.table}, batches: {query.lastProgress.batchId + 1 if query.lastProgress else 0}")


if __name__ == "__main__":
    main()
