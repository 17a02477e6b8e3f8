"""Joins the same input in several ways, each in a process of its own, on the fixed workloads.

::

    suite ──► side_process ──► child ──► bench.sides      the order of runs; the processes; what runs in one
      ├──► inputs                                         Parquet in slices
      └──► report                                         ratios and tables
"""
