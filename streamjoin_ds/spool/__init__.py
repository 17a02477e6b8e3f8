"""The spool: takes in messages of a source that cannot be read twice, and keeps them where they can.

::

    MQTT broker ─► mqtt_client (mqtt_packets) ─┐                                  _status.json
                                               ├─► intake ─► SpoolWriter ─► segments ─► source/files reads them
    HTTP POST  ──► http_server, _connection ───┤     │       write, fdatasync, mark
    Kafka      ─► kafka_client (kafka/) ───────┘     │
         ▲                                           │
         └────────────── acknowledged ◄──────────────┘

A message is acknowledged once it is on the device. So none is lost, and one that was not acknowledged in time comes
again. The folder is a source like any other (format "spool"). No Spark here, and no join: `streamjoin intake` is a
process of its own.
"""
