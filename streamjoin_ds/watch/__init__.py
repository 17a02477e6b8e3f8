"""Watching a join: a page, Prometheus and OpenTelemetry, in a process of their own that reads the join's tables.

::

    checkpoint ─► its tables ─► TableTail ─► WatchedJoin ─┬─► page_server ─► a browser
     (join.json)  (ledger, metrics, ...)                  ├─► measures ─► Prometheus
                                                          └─► measures ─► OpenTelemetry
    Watcher (beside the query) ─► starts that process, and ends it with the query

Nothing here runs in the query's own process but `Watcher`, which starts the other one. What is shown is what the tables
say, so a page beside a query that runs elsewhere shows the same.
"""
