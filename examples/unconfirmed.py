"""Readings without a partner: what a city's stations measured, and no suburban one confirmed within six hours.

    spark-submit examples/unconfirmed.py URBAN.csv.gz SUBURBAN.csv.gz ALARMS_TABLE CHECKPOINT

Such a row is right for good: it comes once the watermark says that no suburban reading can still confirm it. A reading
without PM2.5 confirms nothing and is confirmed by none.
"""

import argparse

from pyspark.sql import SparkSession

from streamjoin_ds import Stream, StreamJoin, band

HAZARDOUS = 300  # micrograms of fine dust in a cubic metre


def unconfirmed(urban: str, suburban: str) -> StreamJoin:
    """Return the join: hazardous urban readings without a suburban one within 100 of them in the six hours after."""
    return StreamJoin(
        [
            Stream("u", urban, time="ts", where=f"`PM2.5` >= {HAZARDOUS}"),
            Stream("s", suburban, time="ts"),
        ],
        on=[band("u.PM2.5", "s.PM2.5", 100)],
        window={"u": "6h", "s": "0s"},
        select=["u.ts", "u.station", "u.PM2.5"],
        how="anti",
    )


def main() -> None:
    """Run the join on the files named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("urban", "suburban", "table", "checkpoint"):
        parser.add_argument(name)
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("unconfirmed").getOrCreate()
    query = unconfirmed(arguments.urban, arguments.suburban).start(
        spark, to=arguments.table, checkpoint=arguments.checkpoint, available_now=True, max_rows_per_batch=100_000
    )
    query.awaitTermination()
    print(f"unconfirmed readings in {arguments.table}")


if __name__ == "__main__":
    main()
