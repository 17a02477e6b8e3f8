"""The survey: what a source is that nobody described, and how a join reads it (`streamjoin look`).

::

    location ──► sample ──► clock ──────────► trial ─────────────► Survey ──► report, stanza
                 dialect,   column, form,     the source, read     options,   text, JSON, TOML, SQL, Python
                 envelope   unit, zone        with the options     guesses

* ``dialect``    lines of fields: encoding, delimiter, header, comments, signs
* ``envelope``   JSON: lines, arrays, arrays within records; paths
* ``sample``     what a source begins with
* ``clock``      the event time: one column or several, form, unit, zone
* ``survey``     the ways tried, the one that works, what is seen of its times
* ``look``       one source or several; ``pair``: what two have in common
* ``report``, ``stanza``   what is printed and pasted

Nothing here decides a row: a join does what its options say.
"""
