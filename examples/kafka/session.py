"""The join of readings.toml in a Spark session of your own, as a job for spark-submit; the README has the command.

No jar reads Kafka: the topics are read beside Java. Only Delta's jars are needed, to query the tables by Spark.
"""

import argparse

from pyspark.sql import SparkSession

from streamjoin_ds import Stream, StreamJoin

SCHEMA = {"ts": "int64", "number": "int64", "temperature": "double"}


def readings(servers: str) -> StreamJoin:
    """Return the join: readings of the hall and the yard within 0.1 degrees and 2 seconds of each other."""
    topics = [
        Stream(topic, f"kafka://{servers}/{topic}?format=json", delay="1s", idle_timeout="1m", schema=SCHEMA)
        for topic in ("hall", "yard")
    ]
    return StreamJoin(topics, on="abs(hall.temperature - yard.temperature) <= 0.1", window="2s")


def main() -> None:
    """Join what the topics hold, then show the first matches by Spark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("checkpoint")
    parser.add_argument("--servers", default="127.0.0.1:9092")
    arguments = parser.parse_args()
    spark = SparkSession.builder.appName("readings").getOrCreate()
    query = readings(arguments.servers).start(spark, arguments.table, arguments.checkpoint, available_now=True)
    query.awaitTermination()
    spark.read.format("delta").load(arguments.table).orderBy("event_time", "hall_seq", "yard_seq").show(5)


if __name__ == "__main__":
    main()
