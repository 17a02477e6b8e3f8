"""Expressions: conditions and values over columns, from their text to arrays of their values.

::

    text ──► parser ──► tree, predicate ──► types, node ──► evaluation
                        as written          as typed        whole arrays at a time
"""
