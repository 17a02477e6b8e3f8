-- Which flights from New York's airports Kennedy and Newark were alike, 15 minutes apart at most?
--
--     streamjoin data flights ./                     the two streams: departures in January 2013
--     streamjoin sql alike.sql --explain             how it would be carried out
--     streamjoin sql alike.sql --available-now       240 pairs, into the Delta table ./alike
--
-- The SELECT means the same over tables: run it in Spark or DuckDB over the two files, and it gives the same rows.

CREATE STREAM kennedy (
  ts TIMESTAMP, carrier STRING, flight BIGINT, dest STRING, delay BIGINT, distance BIGINT, air_time BIGINT
) WITH (source = 'kennedy.csv.gz', time = 'ts');

CREATE STREAM newark WITH (source = 'newark.csv.gz', time = 'ts');  -- its columns are those of the file

SET max_rows_per_batch = 50000;

INSERT INTO alike WITH (checkpoint = 'alike.ckpt')
SELECT k.ts, k.carrier, k.flight, k.dest,
       n.ts AS newark_ts, n.carrier AS newark_carrier, n.flight AS newark_flight, n.dest AS newark_dest
FROM kennedy AS k
JOIN newark AS n
  ON abs(k.distance - n.distance) <= 10
 AND abs(k.air_time - n.air_time) <= 5
 AND abs(k.delay - n.delay) <= 5
 AND k.ts BETWEEN n.ts - INTERVAL 15 MINUTES AND n.ts + INTERVAL 15 MINUTES;
