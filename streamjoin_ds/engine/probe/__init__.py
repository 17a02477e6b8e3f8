"""New tuples meet windows: probes, stream by stream, until the results are rows."""
