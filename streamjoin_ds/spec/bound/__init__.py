"""The bound join: a join whose columns' types are known, with bounds that are exact for these types.

::

    Join, schemas ──► binding ──► bound_join     what is compared, found, decided and returned
                         ├──► bound_columns      which columns travel, and which a result has
                         ├──► calculations       values of a result, aggregates, distances
                         └──► terms              conditions that keys cannot decide
                                └──► finders ──► limit     what finds their pairs
"""
