"""Spark as this package starts it: session, Java, jars, workers, and the files that its processes leave."""
