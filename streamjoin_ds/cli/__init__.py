"""The front door: what a person types.

::

    streamjoin ──► main ──► run      start a join from a file or from SQL-like text
                     │      demo     the shortest look at a running join
                     │      explain  what would be done, and why
                     │      schema   what the file may hold, for editors
                     │      bench    the fixed workloads, beside their peers
                     │      doctor   what this machine has, lacks, and what to type
                     │
                     └── loads a command's module only when it is asked for; prints an error as one line

Each command is a module of its name with an attribute `command`. Nothing outside this room imports it.
"""
