-- maintenance: what the join does by itself, for those who would rather do it from Spark. Safe while the join runs.
--
-- | statement         | what it does                                                                             |
-- |-------------------|------------------------------------------------------------------------------------------|
-- | OPTIMIZE          | rewrites small files into large ones; rows stay as they are                              |
-- | VACUUM            | removes files a week after they were replaced, and files of failed attempts              |
-- | DESCRIBE HISTORY  | one row per commit; userMetadata holds batch, query id, punctuation and fingerprint      |
--
-- First: SET streamjoin.root=/data/matches (the path of the matches table). Leave the retention check on: with less
-- than 168 hours a reader, or a batch being written, loses files that it needs.

OPTIMIZE delta.`${streamjoin.root}`;

OPTIMIZE delta.`${streamjoin.root}_ledger`;

OPTIMIZE delta.`${streamjoin.root}_metrics`;

OPTIMIZE delta.`${streamjoin.root}_punctuations`;

VACUUM delta.`${streamjoin.root}` RETAIN 168 HOURS;

DESCRIBE HISTORY delta.`${streamjoin.root}`;
