"""Generated streams: tuples that are a function of parameters and row number alone.

::

    generator ──► band_rows, sensor_rows ──► synthetic      by name: the papers' streams, sensors; random numbers by row
"""
