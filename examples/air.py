"""Does city air reach the suburbs: stations with the same air within six hours, the city first.

    spark-submit examples/air.py URBAN.csv.gz SUBURBAN.csv.gz MATCHES_TABLE CHECKPOINT

The window is not symmetric: an urban reading waits six hours for suburban ones, a suburban one waits for none.
"""

import argparse

from pyspark.sql import SparkSession

from streamjoin_ds import Stream, StreamJoin, band


def same_air(urban: str, suburban: str) -> StreamJoin:
    """Return the join: PM2.5 within 5, temperature and wind within 0.5, suburban 0 to 6 hours after urban readings."""
    return StreamJoin(
        [Stream("u", urban, time="ts"), Stream("s", suburban, time="ts")],
        on=[band("u.PM2.5", "s.PM2.5", 5), band("u.TEMP", "s.TEMP", 0.5), band("u.WSPM", "s.WSPM", 0.5)],
        window={"u": "6h", "s": "0s"},
        select=["u.ts", "u.station", "u.PM2.5", "s.ts", "s.station", "s.PM2.5"],
    )


def main() -> None:
    """Run the join on the files named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("urban", "suburban", "table", "checkpoint"):
        parser.add_argument(name)
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("air").getOrCreate()
    query = same_air(arguments.urban, arguments.suburban).start(
        spark, to=arguments.table, checkpoint=arguments.checkpoint, available_now=True, max_rows_per_batch=100_000
    )
    query.awaitTermination()
    print(f"matches in {arguments.table}")


if __name__ == "__main__":
    main()
