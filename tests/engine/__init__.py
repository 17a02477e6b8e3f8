"""Tests of the engine: plain Python, DuckDB and the kernels' twins are the oracles."""
