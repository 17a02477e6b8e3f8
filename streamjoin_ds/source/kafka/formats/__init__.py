"""Formats of messages: each message becomes exactly one record or one reject, whatever its neighbours hold.

::

    messages ──► message_records ─┬─► line_messages    an object of JSON, by frames and source/files/json_lines;
                    adds columns  │                    or a line of CSV, by source/files/csv_lines
                    of the        ├─► fixed_messages   a packed struct, by NumPy
                    message       ├─► raw_messages     the bytes themselves
                    itself        └─► registered_messages    a record with its writer's schema from a registry:
                                        avro_messages (fastavro), protobuf_messages (protobuf)
                        │
                        └──► a chunk: tuples, and rejects with partition, offset, bytes and reason

Types and refusals are those of files: `spec.inside` brings columns to their types.
"""
