-- ordered_between: the results of a range of event time, in one order for every run.
--
-- | name                | what it is                                                                              |
-- |---------------------|-----------------------------------------------------------------------------------------|
-- | ${streamjoin.root}  | path of the matches table; first: SET streamjoin.root=/data/matches                     |
-- | streamjoin_begin    | session variable, included: DECLARE OR REPLACE VARIABLE streamjoin_begin TIMESTAMP = .. |
-- | streamjoin_end      | session variable, not included: likewise; the range is cut at the newest punctuation    |
--
-- Ranges that meet (the end of one is the begin of the next) neither overlap nor leave a gap. Rows of one event_time
-- are sorted by all other columns but batch_id, which tells in which batch a row came and may differ between runs.

DECLARE OR REPLACE VARIABLE streamjoin_punctuation TIMESTAMP;

SET VAR streamjoin_punctuation = (SELECT max(punctuation) FROM delta.`${streamjoin.root}_punctuations`);

SELECT event_time, * EXCEPT (event_time, batch_id)
FROM delta.`${streamjoin.root}`
WHERE event_time >= streamjoin_begin AND event_time < least(streamjoin_end, streamjoin_punctuation)
ORDER BY ALL;
