"""Generated streams: tuples that are a function of parameters and row number alone."""
