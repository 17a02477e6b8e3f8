"""Vessels too close: for each position of a vessel the nearest other one within a mile and a minute, and how far it is.

    spark-submit examples/vessels.py POSITIONS.csv ENCOUNTERS_TABLE CHECKPOINT

POSITIONS has ``ts,vessel,x,y``, the places in metres. Start it again with the same checkpoint after the file grew. A
row comes once no nearer vessel can be reported any more: when the watermark has passed the position's minute.
"""

import argparse

from pyspark.sql import SparkSession

from streamjoin_ds import Nearest, Stream, StreamJoin

MILE_M = 1852


def encounters(positions: str) -> StreamJoin:
    """Return the join: each position with the nearest of another vessel, by the distance in x and y."""
    apart = "(a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y)"
    return StreamJoin(
        [Stream(name, positions, time="ts", delay="30s") for name in ("a", "b")],
        on=[
            f"abs(a.x - b.x) <= {MILE_M}",
            f"abs(a.y - b.y) <= {MILE_M}",
            f"{apart} <= {MILE_M**2}",
            "a.vessel <> b.vessel",
        ],
        window="1m",
        select=["a.ts", "a.vessel", "a.x", "a.y", "b.ts", "b.vessel", "b.x", "b.y"],
        nearest=Nearest(by=apart),
    )


def main() -> None:
    """Run the join on the file named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("positions", "table", "checkpoint"):
        parser.add_argument(name)
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("vessels").getOrCreate()
    query = encounters(arguments.positions).start(
        spark, to=arguments.table, checkpoint=arguments.checkpoint, available_now=True
    )
    query.awaitTermination()
    print(f"encounters in {arguments.table}")


if __name__ == "__main__":
    main()
