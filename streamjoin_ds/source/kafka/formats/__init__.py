"""Formats of messages: each message becomes exactly one record or one reject, whatever its neighbours hold.

::

    messages ──► message_records ──► json_messages    frames ──► source/files/json_lines   an object a message
                    columns of the    csv_messages              source/files/csv_lines     a line a message
                    message itself    fixed_messages            NumPy                      a struct a message
                    are added         raw_messages                                         the bytes themselves
                        │
                        └──► a chunk: tuples, and rejects with partition, offset, bytes and reason

Types and refusals are those of files: `spec.inside` brings columns to their types.
"""
