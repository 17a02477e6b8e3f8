"""SQL in, queries running: a text of statements, as joins and how to run them.

::

    text ──► tokens ──► statements ──► conditions, time_bounds ──► request ──► started
             where      CREATE STREAM  ON and WHERE: what finds,    a join     one query for
             each word  SET, INSERT,   what decides, the window     and its    each INSERT
             stands     EXPLAIN                                     options

sqlglot's tokenizer of Spark's dialect reads the words, and `spec.parse` reads the conditions, as it reads those of
`Join`. The statements are read here, so that each refusal says where in the text it is and what is valid there. No text
is evaluated, and none reaches Spark as SQL.
"""
