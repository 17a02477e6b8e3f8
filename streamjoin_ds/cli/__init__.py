"""The commands that a person types.

::

    streamjoin ──► main ──► run      start a join from a file or from SQL-like text
                     │      demo     the shortest look at a running join
                     │      data     a small recorded data set, to try joins on
                     │      explain  what would be done, and why
                     │      schema   what the file may hold, for editors
                     │      inspect  what a checkpoint holds
                     │      repair   mend a checkpoint and its tables
                     │      vacuum   remove what crashes left in a checkpoint
                     │      bench    the fixed workloads, beside their peers
                     │      doctor   what this machine has, lacks, and what to type
                     │
                     └── loads a command's module only when it is asked for; prints an error as one line

`main` says in which module a command stands. No other room imports this one.
"""
