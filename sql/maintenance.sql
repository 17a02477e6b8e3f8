-- maintenance: the upkeep that a join does by itself, for users who prefer to do it from Spark. Safe beside the join.
--
-- | statement         | what it does                                                                             |
-- |-------------------|------------------------------------------------------------------------------------------|
-- | OPTIMIZE          | rewrites small files into large ones; rows stay as they are                              |
-- | VACUUM            | removes files a week old that are not in the table: replaced, or of failed attempts      |
-- | DESCRIBE HISTORY  | one row per commit; userMetadata holds batch, query id, punctuation and fingerprint      |
--
-- First: SET streamjoin.root=/data/matches (the path of the matches table). Always say RETAIN 168 HOURS: a VACUUM
-- without it goes by delta.deletedFileRetentionDuration, and a reader, or a batch being written, then loses files that
-- it needs. In these tables that is only six hours, as a checkpoint of the log names all files replaced in that time.

OPTIMIZE delta.`${streamjoin.root}`;

OPTIMIZE delta.`${streamjoin.root}_ledger`;

OPTIMIZE delta.`${streamjoin.root}_metrics`;

OPTIMIZE delta.`${streamjoin.root}_punctuations`;

VACUUM delta.`${streamjoin.root}` RETAIN 168 HOURS;

DESCRIBE HISTORY delta.`${streamjoin.root}`;
