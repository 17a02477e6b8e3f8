"""librdkafka as any reader of ours needs it: settings that are never shown, quiet clients, errors that name a setting.

::

    file, environment ──► settings ──► client ──► source/kafka (streams), spool/kafka_client (intake)
"""
