"""What the call of a handler costs: a worker's calls of a function against PERFORM of it in a loop."""

import measure

# Messages: what stands around each of their handlers' calls is the least there is.
DEFINE = """
    CREATE TABLE ledger (key uuid NOT NULL, what text NOT NULL, amount integer NOT NULL);

    CREATE FUNCTION nothing_plpgsql(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS
        $$ BEGIN END $$;
    CREATE FUNCTION nothing_sql(m stacksaga.message) RETURNS void LANGUAGE sql AS '';
    CREATE FUNCTION insert_plpgsql(m stacksaga.message) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO ledger VALUES (m.message_id, m.topic, (m.payload -> 'amount')::integer);
    END $$;
    CREATE FUNCTION insert_sql(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
        INSERT INTO ledger VALUES (m.message_id, m.topic, (m.payload -> 'amount')::integer)
    $$;

    -- The same calls by hand, in transactions as large as a worker's batch.
    CREATE PROCEDURE loop_of(handler text, calls integer) LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format($do$
            CREATE OR REPLACE PROCEDURE looped(calls integer) LANGUAGE plpgsql AS $loop$
            DECLARE
                m stacksaga.message;
            BEGIN
                m := ROW (NULL, gen_random_uuid(), 'call', 'key', 'type', '{"amount": 20}', '{}', 1, now());
                FOR i IN 1..calls / 256 LOOP
                    FOR j IN 1..256 LOOP
                        PERFORM %I(m);
                    END LOOP;
                    COMMIT;
                END LOOP;
            END $loop$ $do$, handler);
    END $$;

    CREATE FUNCTION insert_step_plpgsql(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO ledger VALUES (call.saga_id, call.step, (call.input -> 'amount')::integer);
        RETURN '{}';
    END $$;
    CREATE FUNCTION insert_step_sql(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$
        INSERT INTO ledger VALUES (call.saga_id, call.step, (call.input -> 'amount')::integer);
        SELECT '{}'::jsonb
    $$;
    CREATE FUNCTION define(saga text, action text) RETURNS integer LANGUAGE sql AS $$
        SELECT stacksaga.define_saga(saga, (SELECT array_agg(stacksaga.sql_step('step ' || n, action))
                                              FROM generate_series(1, 3) AS n))
    $$;
    SELECT define('steps_plpgsql', 'insert_step_plpgsql(stacksaga.step_call)'),
           define('steps_sql', 'insert_step_sql(stacksaga.step_call)'),
           stacksaga.define_saga('steps_empty',
               (SELECT array_agg(stacksaga.timer_step('step ' || n, '0')) FROM generate_series(1, 3) AS n));
"""


class Calls:
    """A database with one worker, and the CPU time that each way of calling takes."""

    def __init__(self, bench):
        self.db = bench.database()
        self.db.sql(DEFINE)
        self.db.sql('SELECT stacksaga.create_subscription(%s, %s, %s)', 'warm', 'warm',
                    'nothing_sql(stacksaga.message)')
        measure.wait_until(lambda: self.db.sql('SELECT count(*) = 1 FROM stacksaga.worker_stats'),
                           'the worker works', patience=60)
        self.worker = self.db.sql('SELECT pid FROM stacksaga.worker_stats')
        self.session = self.db.sql('SELECT pg_backend_pid()')

    def by_worker(self, handler, calls):
        """Microseconds of a worker for each message."""
        self.db.sql('TRUNCATE ledger')
        self.db.sql("SELECT stacksaga.publish_batch('call', array_fill('{\"amount\": 20}'::jsonb, ARRAY[1000]))"
                    ' FROM generate_series(1, %s)', calls // 1000)
        self.db.sql('VACUUM ANALYZE')
        before = measure.cpu_of(self.worker)
        self.db.sql("SELECT stacksaga.create_subscription('call', 'call', %s, start_at => 'earliest')",
                    f'{handler}(stacksaga.message)')
        measure.wait_until(lambda: self.db.sql('SELECT lag_messages = 0 FROM stacksaga.subscriptions'
                                               " WHERE subscription = 'call'"),
                           'all is handled', patience=300, pause=0.2)
        seconds = measure.cpu_of(self.worker) - before
        self.must_have(handler, calls)
        self.db.must('SELECT pid = %s FROM stacksaga.worker_stats', self.worker)
        self.db.sql("SELECT stacksaga.drop_subscription('call', true)")
        self.db.sql('TRUNCATE stacksaga.outbox_message')
        return seconds / calls * 1e6

    def by_hand(self, handler, calls):
        """Microseconds of a session for each PERFORM."""
        self.db.sql('TRUNCATE ledger')
        self.db.sql('CALL loop_of(%s, %s)', handler, calls)
        before = measure.cpu_of(self.session)
        self.db.sql('CALL looped(%s)', calls)
        seconds = measure.cpu_of(self.session) - before
        self.must_have(handler, calls // 256 * 256)
        return seconds / calls * 1e6

    def of_sagas(self, saga, sagas):
        """Microseconds of a worker for each step."""
        self.db.sql('TRUNCATE ledger')
        self.db.sql('VACUUM ANALYZE')
        before = measure.cpu_of(self.worker)
        self.db.sql("SELECT count(*) FROM generate_series(1, %s) AS n,"
                    " stacksaga.start_saga(%s, jsonb_build_object('amount', n))", sagas, saga)
        measure.wait_until(lambda: self.db.sql('SELECT NOT EXISTS (SELECT FROM stacksaga.work)'),
                           'all sagas end', pause=0.2)
        seconds = measure.cpu_of(self.worker) - before
        if saga != 'steps_empty':
            self.db.must('SELECT count(*) = %s FROM ledger', 3 * sagas)
        self.db.sql('TRUNCATE stacksaga.saga, stacksaga.effect')
        return seconds / sagas / 3 * 1e6

    def must_have(self, handler, calls):
        rows = calls if handler.startswith('insert') else 0
        self.db.must('SELECT count(*) = %s FROM ledger', rows)


def run(bench):
    calls = Calls(bench)
    messages, sagas = (50_000, 2_000) if bench.quick else (200_000, 10_000)
    bench.extent = f'{bench.rounds} rounds of {messages:,} messages and of {sagas:,} sagas'
    handlers = (('nothing_plpgsql', 'PL/pgSQL that does nothing'), ('nothing_sql', 'SQL that does nothing'),
                ('insert_plpgsql', 'PL/pgSQL that inserts a row'), ('insert_sql', 'SQL that inserts a row'))
    for handler, what in handlers:
        pairs = [(calls.by_worker(handler, messages), calls.by_hand(handler, messages))
                 for _ in range(bench.rounds)]
        bench.figure(f'{what}: a message, by a worker', [ours for ours, _ in pairs], 'us of CPU')
        bench.figure(f'{what}: PERFORM in a loop', [hand for _, hand in pairs], 'us of CPU')
    for saga, what in (('steps_empty', 'a step that calls nothing'),
                       ('steps_plpgsql', 'a step, PL/pgSQL that inserts a row'),
                       ('steps_sql', 'a step, SQL that inserts a row')):
        bench.figure(f'{what}: by a worker', [calls.of_sagas(saga, sagas) for _ in range(bench.rounds)],
                     'us of CPU')


measure.main(run, measure.Figures)
