"""SQL in, queries running: a text of statements, as joins and how to run them.

::

    sql_text ──► reader ──► conditions, time_bounds, partners ──► query_builder ──► script
    tokens,      CREATE STREAM  ON and WHERE: what finds,         a join and its    one query for
    and where    SET, INSERT,   what decides, the window          options           each INSERT
    each stands  EXPLAIN

sqlglot's tokenizer of Spark's dialect reads the words, and `expression.parser` reads the conditions, as it reads those
of `Join`. The statements are read here, so that each refusal says where in the text it is and what is valid there. No
text is evaluated, and none reaches Spark as SQL.
"""
