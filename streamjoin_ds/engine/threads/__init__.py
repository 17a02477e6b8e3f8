"""Threads of one push, and the cores that they run on."""
