-- maintenance: what the join does by itself, for those who would rather do it from Spark. Safe while the join runs.
--
-- | statement         | what it does                                                                             |
-- |-------------------|------------------------------------------------------------------------------------------|
-- | OPTIMIZE          | rewrites small files into large ones; rows stay as they are                              |
-- | VACUUM            | removes files a week old that the table does not have, and files of failed attempts      |
-- | DESCRIBE HISTORY  | one row per commit; userMetadata holds batch, query id, punctuation and fingerprint      |
--
-- First: SET streamjoin.root=/data/matches (the path of the matches table). Say RETAIN 168 HOURS, always: the tables keep
-- delta.deletedFileRetentionDuration short (six hours; a checkpoint of the log holds what was replaced in that time), and
-- a VACUUM without RETAIN goes by it; a reader, or a batch being written, then loses files that it needs.

OPTIMIZE delta.`${streamjoin.root}`;

OPTIMIZE delta.`${streamjoin.root}_ledger`;

OPTIMIZE delta.`${streamjoin.root}_metrics`;

OPTIMIZE delta.`${streamjoin.root}_punctuations`;

VACUUM delta.`${streamjoin.root}` RETAIN 168 HOURS;

DESCRIBE HISTORY delta.`${streamjoin.root}`;
