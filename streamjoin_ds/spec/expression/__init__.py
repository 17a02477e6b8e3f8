"""Expressions: conditions and values over columns, from their text to arrays of their values."""
