-- Readings above the threshold that holds for their sensor at their time: a stream and a table (examples/thresholds.py).
CREATE STREAM r WITH (source = 'readings', time = 'ts', delay = '30s');
CREATE TABLE t WITH (source = 'thresholds', refresh = '1m');

INSERT INTO alarms WITH (checkpoint = 'alarms.ckpt')
SELECT r.ts, r.sensor, r.value, t.most
FROM r JOIN t
  ON r.sensor = t.sensor
 AND r.value > t.most
 AND r.ts >= t.valid_from
 AND (t.valid_to IS NULL OR r.ts < t.valid_to);
