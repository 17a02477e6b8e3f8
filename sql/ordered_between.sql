-- ordered_between: the results of a range of event time, in an order that is the same in every run.
--
-- | name                | what it is                                                                              |
-- |---------------------|-----------------------------------------------------------------------------------------|
-- | ${streamjoin.root}  | path of the matches table; first: SET streamjoin.root=/data/matches                     |
-- | streamjoin_begin    | session variable, included: DECLARE OR REPLACE VARIABLE streamjoin_begin TIMESTAMP = .. |
-- | streamjoin_end      | likewise, not included; the range ends at the newest punctuation if that is earlier     |
--
-- Ranges that meet (one ends where the next begins) neither overlap nor leave a gap. Rows of one event_time are sorted
-- by all other columns but batch_id: a row may come in another batch in another run.

DECLARE OR REPLACE VARIABLE streamjoin_punctuation TIMESTAMP;

SET VAR streamjoin_punctuation = (SELECT max(punctuation) FROM delta.`${streamjoin.root}_punctuations`);

SELECT event_time, * EXCEPT (event_time, batch_id)
FROM delta.`${streamjoin.root}`
WHERE event_time >= streamjoin_begin AND event_time < least(streamjoin_end, streamjoin_punctuation)
ORDER BY ALL;
