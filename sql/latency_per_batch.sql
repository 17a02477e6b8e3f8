-- latency_per_batch: how long after its newest tuple a batch was in the table, and what it did.
--
-- | column             | what it is                                                                               |
-- |--------------------|------------------------------------------------------------------------------------------|
-- | batch_id           | Spark's batch number                                                                     |
-- | matches            | result rows that the batch added                                                         |
-- | latency_seconds    | committed_at minus largest_ts: end to end if tuples have the present time, else no use   |
-- | behind_seconds     | largest_ts minus punctuation: how far the complete results lag behind the input          |
-- | slowest_cell_ms    | longest time a cell spent on the batch                                                   |
-- | candidates         | number of pairs that were tested                                                         |
-- | state_rows, _bytes | rows and bytes that the windows hold after the batch                                     |
--
-- First: SET streamjoin.root=/data/matches (the path of the matches table).

SELECT
  p.batch_id,
  p.matches,
  (unix_micros(p.committed_at) - unix_micros(p.largest_ts)) / 1e6 AS latency_seconds,
  (unix_micros(p.largest_ts) - unix_micros(p.punctuation)) / 1e6 AS behind_seconds,
  m.slowest_cell_ms,
  m.candidates,
  m.state_rows,
  m.state_bytes
FROM delta.`${streamjoin.root}_punctuations` AS p
LEFT JOIN (
  SELECT
    batch_id,
    max(duration_ms) AS slowest_cell_ms,
    sum(candidates) AS candidates,
    sum(state_rows) AS state_rows,
    sum(state_bytes) AS state_bytes
  FROM delta.`${streamjoin.root}_metrics`
  GROUP BY batch_id
) AS m ON m.batch_id = p.batch_id
ORDER BY p.batch_id;
