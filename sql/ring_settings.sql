-- Rings and their settings: create_ring, alter_ring, and every bad input.
CREATE FUNCTION pg_temp.refused(statement text, OUT code text, OUT message text, OUT detail text)
LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE statement;
    message := 'not refused';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    IF hint = '' THEN
        message := message || ' (without a hint)';
    END IF;
END
$$;

-- The default ring is there, and asking for it changes nothing.
SELECT stacksaga.create_ring('default', 'default') AS ring_id;
SELECT setting, value FROM stacksaga.ring_settings
 WHERE region = 'default' AND cluster = 'default' ORDER BY setting COLLATE "C";

-- A ring is created once; what it was given is kept where it differs from the defaults.
SELECT stacksaga.create_ring('s', 'one', window_length => '2 seconds', publish_lead => '1 second',
                             strategy => 'contiguous', slots => 64) AS one \gset
SELECT stacksaga.create_ring('s', 'one', '2 seconds', '1 second', 'contiguous', 64, 'keep') = :one
    AS same;
SELECT setting, value FROM stacksaga.ring_setting WHERE ring_id = :one ORDER BY setting COLLATE "C";
SELECT * FROM pg_temp.refused($$SELECT stacksaga.create_ring('s', 'one')$$);
SELECT count(*), min(range_start), max(range_end), max(epoch), count(node)
  FROM stacksaga.ring_slots('s', 'one');
SELECT window_length, publish_lead, strategy, slots, epoch, last_window,
       database_time BETWEEN statement_timestamp() AND clock_timestamp() AS is_now
  FROM stacksaga.ring_state('s', 'one');

-- Changed settings are kept, and forgotten when they are the default again.
SELECT stacksaga.alter_ring('s', 'one', 'strategy', 'consistent');
SELECT stacksaga.alter_ring('s', 'one', 'on_missing_window', 'pause');
SELECT stacksaga.alter_ring('s', 'one', 'heartbeat_interval', '200 milliseconds');
SELECT stacksaga.alter_ring('s', 'one', 'rebalance_delay', '1 minute');
SELECT setting, value FROM stacksaga.ring_setting WHERE ring_id = :one ORDER BY setting COLLATE "C";
SELECT stacksaga.alter_ring('s', 'one', 'window_length', '60 seconds');
SELECT stacksaga.alter_ring('s', 'one', 'publish_lead', '0.5 minutes');
SELECT stacksaga.alter_ring('s', 'one', 'on_missing_window', 'keep');
SELECT stacksaga.alter_ring('s', 'one', 'heartbeat_interval', '5');
SELECT stacksaga.alter_ring('s', 'one', 'rebalance_delay', '0');
SELECT count(*) FROM stacksaga.ring_setting WHERE ring_id = :one;
SELECT stacksaga.create_ring('s', 'one', slots => 64) = :one AS same_again;

-- The points of a node on the hash ring.
SELECT stacksaga.alter_ring('s', 'one', 'virtual_nodes', '1024');
SELECT virtual_nodes FROM stacksaga.ring_state('s', 'one');
SELECT stacksaga.alter_ring('s', 'one', 'virtual_nodes', '128');
SELECT virtual_nodes, count(s.setting) AS kept
  FROM stacksaga.ring_state('s', 'one') LEFT JOIN stacksaga.ring_setting AS s ON s.ring_id = :one GROUP BY 1;
SELECT v AS value, r.* FROM unnest(ARRAY['0', '1025', '-1', '1.5', ' 128', '', '10000000000000000000', '128 minutes']) WITH ORDINALITY AS v(v, n),
       pg_temp.refused(format('SELECT stacksaga.alter_ring(%L, %L, %L, %L)', 's', 'one', 'virtual_nodes', v)) AS r ORDER BY n;

-- Bad input changes nothing.
SELECT count(*) AS rings FROM stacksaga.ring \gset before_
SELECT c.call, r.* FROM (VALUES
    ($$create_ring(NULL, 'x')$$),
    ($$create_ring('s', NULL)$$),
    ($$create_ring('', 'x')$$),
    ($$create_ring('s', '')$$),
    ($$create_ring(repeat('r', 64), 'x')$$),
    ($$create_ring('s', repeat('ü', 100000))$$),
    ($$create_ring('s', 'x', window_length => NULL)$$),
    ($$create_ring('s', 'x', window_length => '0')$$),
    ($$create_ring('s', 'x', window_length => '-1 second')$$),
    ($$create_ring('s', 'x', window_length => '99 milliseconds')$$),
    ($$create_ring('s', 'x', window_length => '367 days')$$),
    ($$create_ring('s', 'x', window_length => '178000000 years')$$),
    ($$create_ring('s', 'x', publish_lead => NULL)$$),
    ($$create_ring('s', 'x', publish_lead => '-1 microsecond')$$),
    ($$create_ring('s', 'x', strategy => NULL)$$),
    ($$create_ring('s', 'x', strategy => '')$$),
    ($$create_ring('s', 'x', strategy => 'Consistent')$$),
    ($$create_ring('s', 'x', slots => NULL)$$),
    ($$create_ring('s', 'x', slots => 0)$$),
    ($$create_ring('s', 'x', slots => -256)$$),
    ($$create_ring('s', 'x', slots => 32)$$),
    ($$create_ring('s', 'x', slots => 100)$$),
    ($$create_ring('s', 'x', slots => 8192)$$),
    ($$create_ring('s', 'x', on_missing_window => NULL)$$),
    ($$create_ring('s', 'x', on_missing_window => 'stop')$$),
    ($$alter_ring('s', 'nowhere', 'strategy', 'contiguous')$$),
    ($$alter_ring(NULL, 'one', 'strategy', 'contiguous')$$),
    ($$alter_ring('s', 'one', NULL, 'contiguous')$$),
    ($$alter_ring('s', 'one', 'strategy', NULL)$$),
    ($$alter_ring('s', 'one', 'strategy', 'random')$$),
    ($$alter_ring('s', 'one', '', '1')$$),
    ($$alter_ring('s', 'one', 'slots', '128')$$),
    ($$alter_ring('s', 'one', repeat('s', 1000), '128')$$),
    ($$alter_ring('s', 'one', 'window_length', 'soon')$$),
    ($$alter_ring('s', 'one', 'window_length', '')$$),
    ($$alter_ring('s', 'one', 'window_length', '-2 seconds')$$),
    ($$alter_ring('s', 'one', 'window_length', '99999999999999 years')$$),
    ($$alter_ring('s', 'one', 'heartbeat_interval', '0')$$),
    ($$alter_ring('s', 'one', 'heartbeat_interval', '16 seconds')$$),
    ($$alter_ring('s', 'one', 'suspect_after', '31 seconds')$$),
    ($$alter_ring('s', 'one', 'dead_after', '1 second')$$),
    ($$ring_state('s', 'nowhere')$$),
    ($$ring_state(NULL, 'one')$$),
    ($$ring_slots('s', NULL)$$),
    ($$ring_slots('', '')$$),
    ($$ring_nodes('s', 'nowhere')$$),
    ($$ring_nodes('s', NULL)$$)
) AS c(call), pg_temp.refused('SELECT * FROM stacksaga.' || c.call) AS r;
SELECT count(*) = :before_rings AS unchanged FROM stacksaga.ring;
SELECT count(*) FROM stacksaga.ring_setting WHERE ring_id = :one;

-- 1 to 63 bytes, not characters, and every byte counts as it is.
SELECT stacksaga.create_ring('s', repeat('é', 31), slots => 64) > 1 AS created;
SELECT count(*) FROM stacksaga.ring_slots('s', repeat('é', 31));
