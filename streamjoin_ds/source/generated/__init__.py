"""Generated streams: each tuple is a function of the parameters and its row number alone.

::

    generator ──► band_rows, sensor_rows ──► synthetic      by name: the papers' streams, sensors; random numbers by row
"""
