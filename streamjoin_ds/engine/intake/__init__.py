"""Rows as people have them, made into tuples: times, numbers, lateness, and the count of what was set aside."""
