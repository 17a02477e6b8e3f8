"""Rows in the forms that users have, made into tuples.

::

    engine_turn ──► push_intake ──► rows ◄── received_rows      a push, its streams, one stream's rows, their forms
                        │
                        └──► lateness                           late by the stream's own order, or not
"""
