-- ledger: what became of every row that was read.
--
-- | column              | what it is                                                                            |
-- |---------------------|---------------------------------------------------------------------------------------|
-- | stream              | the stream's name                                                                     |
-- | batches             | number of batches so far                                                              |
-- | read                | rows read; = stored + late + rejected + filtered + duplicates                         |
-- | stored              | rows that took part in the join                                                       |
-- | late, rejected      | rows set aside; they are in <root>_late and <root>_rejects                            |
-- | filtered            | rows left out by a condition on their stream alone (where, --where)                   |
-- | duplicates          | rows that repeat the key of one before them (unique, --unique)                        |
-- | null_keys           | stored rows with a compared column that is null or NaN; they have no partner          |
-- | unaccounted         | read less all of these: 0, or rows were lost                                          |
-- | late_kept           | rows in <root>_late: must be equal to late                                            |
-- | rejected_kept       | rows in <root>_rejects: must be equal to rejected                                     |
-- | largest_ts          | the stream's newest event time                                                        |
-- | files_set_aside     | bad files, or rests of files, set aside (on_bad_file="quarantine"); among rejected    |
-- | lost_offsets        | offsets of a topic that were gone before they were read (on_data_loss=skip); no rows   |
-- | held_back_bytes     | bytes of an unfinished last line that waited when the newest batch was planned        |
--
-- First: SET streamjoin.root=/data/matches (the path of the matches table).

SELECT
  l.*,
  coalesce(t.late_kept, 0) AS late_kept,
  coalesce(r.rejected_kept, 0) AS rejected_kept
FROM (
  SELECT
    stream,
    count(*) AS batches,
    sum(read) AS read,
    sum(stored) AS stored,
    sum(late) AS late,
    sum(rejected) AS rejected,
    sum(filtered) AS filtered,
    coalesce(sum(duplicates), 0) AS duplicates,
    sum(null_keys) AS null_keys,
    sum(read - stored - late - rejected - filtered - coalesce(duplicates, 0)) AS unaccounted,
    max(largest_ts) AS largest_ts,
    coalesce(sum(files_set_aside), 0) AS files_set_aside,
    coalesce(sum(lost_offsets), 0) AS lost_offsets,
    coalesce(max_by(held_back_bytes, batch_id), 0) AS held_back_bytes
  FROM delta.`${streamjoin.root}_ledger`
  GROUP BY stream
) AS l
LEFT JOIN (SELECT stream, count(*) AS late_kept FROM delta.`${streamjoin.root}_late` GROUP BY stream) AS t
  ON t.stream = l.stream
LEFT JOIN (SELECT stream, count(*) AS rejected_kept FROM delta.`${streamjoin.root}_rejects` GROUP BY stream) AS r
  ON r.stream = l.stream
ORDER BY l.stream;
