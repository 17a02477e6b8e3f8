-- complete_results: a view of the results that no later batch can add to.
--
-- | name                     | what it is                                                                        |
-- |--------------------------|-----------------------------------------------------------------------------------|
-- | ${streamjoin.root}       | path of the matches table; first: SET streamjoin.root=/data/matches               |
-- | streamjoin_punctuation   | session variable set here; every result with event_time before it is in the table |
-- | complete_results         | the view; run the SET VAR statement again to move it on                           |
--
-- The punctuation is read before the matches, so the matches hold at least what it promises. A query that reads both at
-- once could see the punctuation of a batch whose rows are not yet in its older snapshot of the matches.

DECLARE OR REPLACE VARIABLE streamjoin_punctuation TIMESTAMP;

SET VAR streamjoin_punctuation = (SELECT max(punctuation) FROM delta.`${streamjoin.root}_punctuations`);

CREATE OR REPLACE TEMPORARY VIEW complete_results AS
SELECT * FROM delta.`${streamjoin.root}` WHERE event_time < streamjoin_punctuation;
