-- verify: does the join again as plain Spark SQL over recorded input, and compares it with the table, both ways.
--
-- | name                | what it is                                                                              |
-- |---------------------|-----------------------------------------------------------------------------------------|
-- | ${streamjoin.root}  | path of the matches table; first: SET streamjoin.root=/data/matches                     |
-- | r, s                | views of the recorded input without late rows: seq, ts, and r.x, r.y, s.a, s.b          |
-- | difference          | the answer: 'missing' pairs the table lacks, 'surplus' pairs it should not have         |
--
-- The join here is an example: band2d, |r.x - s.a| <= 10 and |r.y - s.b| <= 10 within 15 minutes, results with r_seq
-- and s_seq. Write your own predicates in its place, always in the form abs(l - r) <= eps: `r BETWEEN l - eps AND
-- l + eps` rounds differently, and on decimal grids half of the pairs on the boundary differ. Widen floats to double
-- before the subtraction. Leave NaN out: Spark calls it equal to itself. If the answer has no row, the table is right.

DECLARE OR REPLACE VARIABLE streamjoin_punctuation TIMESTAMP;

SET VAR streamjoin_punctuation = (SELECT max(punctuation) FROM delta.`${streamjoin.root}_punctuations`);

WITH expected AS (
  SELECT r.seq AS r_seq, s.seq AS s_seq
  FROM r JOIN s
    ON abs(CAST(r.x AS BIGINT) - CAST(s.a AS BIGINT)) <= 10
   AND abs(CAST(r.y AS DOUBLE) - CAST(s.b AS DOUBLE)) <= 10.0D
   AND NOT isnan(CAST(r.y AS DOUBLE) - CAST(s.b AS DOUBLE))
   AND abs(unix_micros(r.ts) - unix_micros(s.ts)) <= 15 * 60 * 1000000
  WHERE greatest(r.ts, s.ts) < streamjoin_punctuation
),
found AS (
  SELECT r_seq, s_seq FROM delta.`${streamjoin.root}` WHERE event_time < streamjoin_punctuation
)
SELECT 'missing' AS difference, r_seq, s_seq FROM (SELECT * FROM expected EXCEPT ALL SELECT * FROM found)
UNION ALL
SELECT 'surplus' AS difference, r_seq, s_seq FROM (SELECT * FROM found EXCEPT ALL SELECT * FROM expected)
ORDER BY ALL;
