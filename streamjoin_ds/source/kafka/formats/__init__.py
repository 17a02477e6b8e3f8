"""Formats of messages: each message becomes exactly one record or one reject, whatever its neighbours hold.

::

    messages ──► message_records ─┬─► message_formats      an object of JSON, or a line of CSV, by source/files;
                    adds columns  │                        a packed struct, by NumPy; the bytes themselves
                    of the        └─► registered_messages  a record with its writer's schema from a registry:
                    message                                schema_codecs (fastavro, protobuf)
                    itself
                        │
                        └──► a chunk: tuples, and rejects with partition, offset, bytes and reason

Types and refusals are those of files: `spec.inside` brings columns to their types.
"""
