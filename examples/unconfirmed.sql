-- What a city's stations measured, and no suburban one confirmed within six hours: the join of unconfirmed.py as a text.
--
--     streamjoin sql unconfirmed.sql --explain
--     streamjoin sql unconfirmed.sql --available-now     the alarms, into the Delta table ./unconfirmed
--
-- The SELECT means the same over tables: run it in Spark over the two files, and it gives the same rows. Over streams
-- each of them comes once no suburban reading can still confirm it.

CREATE STREAM urban WITH (source = 'urban.csv.gz', time = 'ts', where = '`PM2.5` >= 300');

CREATE STREAM suburban WITH (source = 'suburban.csv.gz', time = 'ts');

SET max_rows_per_batch = 100000;

INSERT INTO unconfirmed WITH (checkpoint = 'unconfirmed.ckpt')
SELECT u.ts, u.station, u.`PM2.5`
FROM urban AS u
LEFT ANTI JOIN suburban AS s
  ON abs(u.`PM2.5` - s.`PM2.5`) <= 100
 AND s.ts BETWEEN u.ts AND u.ts + INTERVAL 6 HOURS;
