"""Waiting for messages: from the commit that publishes one to the receive_messages() that returns it, what a crowd of waiters
hears of it, and what commits that do not concern them pay for a thousand of them."""

import contextlib
import multiprocessing
import statistics
import threading
import time

import psycopg

import measure

RATE = 50  # messages a second: each one finds the consumer waiting
CROWD, IDLE = 200, 1000

PREPARE = """
    SELECT stacksaga.create_subscription('one', 'one'), stacksaga.create_subscription('crowd', 'crowd'),
           stacksaga.create_subscription('idle', 'idle');
    CREATE TABLE unrelated (n bigint);
    CREATE TABLE returned (got bigint);
    CREATE PROCEDURE serve() LANGUAGE plpgsql AS $$
    DECLARE
        batch bigint;
    BEGIN
        LOOP
            CALL stacksaga.wait_for_messages('crowd', '1 minute');
            SELECT max(batch_id) INTO batch FROM stacksaga.receive_messages('crowd', pg_backend_pid()::text);
            INSERT INTO returned VALUES (batch);
            PERFORM stacksaga.ack_messages(batch) WHERE batch IS NOT NULL;
            COMMIT;
        END LOOP;
    END $$
"""

WAITING = "SELECT count(*) = %s FROM pg_stat_activity WHERE wait_event = 'Extension' AND query LIKE 'CALL%%'"
TRANSACTIONS = 'SELECT xact_commit::float8 FROM pg_stat_database WHERE datname = current_database()'


def consume(database, arrived):
    with psycopg.connect(dbname=database, autocommit=True) as db:
        while True:
            rows = db.execute("SELECT batch_id, message_id FROM stacksaga.receive_messages('one', 'c')",
                              prepare=True).fetchall()
            received_at = time.monotonic()
            if rows:
                arrived.put((rows[0][1], received_at))
                db.execute('SELECT stacksaga.ack_messages(%s)', (rows[0][0],), prepare=True)
            else:
                db.execute("CALL stacksaga.wait_for_messages('one', '20 seconds', 'c')")


def latencies(db, number):
    """Milliseconds from the sending of COMMIT to the row that receive_messages() returned."""
    arrived = multiprocessing.SimpleQueue()
    consumer = multiprocessing.Process(target=consume, args=(db.name, arrived), daemon=True)
    consumer.start()
    measure.wait_until(lambda: db.sql(WAITING, 1), 'the consumer waits')
    sent = {}
    with psycopg.connect(dbname=db.name) as client:
        client.execute('SET synchronous_commit = off')  # the flush to disk is no part of what is measured
        client.commit()
        begun = time.monotonic()
        for i in range(number):
            time.sleep(max(0, begun + i / RATE - time.monotonic()))
            message = client.execute("SELECT stacksaga.publish('one', '1', %s)", (str(i),), prepare=True).fetchone()[0]
            sent[message] = time.monotonic()
            client.commit()
    taken = [arrived.get() for _ in range(number)]
    consumer.terminate()
    consumer.join()
    return [1000 * (at - sent[message]) for message, at in taken]


@contextlib.contextmanager
def waiting(db, count, call):
    sessions = [psycopg.connect(dbname=db.name, autocommit=True) for _ in range(count)]

    def wait(session):
        with contextlib.suppress(psycopg.Error):
            while True:
                session.execute(call)

    for session in sessions:
        threading.Thread(target=wait, args=(session,), daemon=True).start()
    measure.wait_until(lambda: db.sql(WAITING, count), f'{count} sessions wait')
    try:
        yield
    finally:
        db.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'CALL%'")
        measure.wait_until(lambda: db.sql(WAITING, 0), 'they have ended')


def transactions_in(db, seconds):
    db.sql('SELECT pg_stat_clear_snapshot()')
    before = db.session.execute(TRANSACTIONS).fetchone()[0]
    time.sleep(seconds)
    db.sql('SELECT pg_stat_clear_snapshot()')
    return db.session.execute(TRANSACTIONS).fetchone()[0] - before


def returned_per_message(db, number):
    db.sql('TRUNCATE returned')
    for i in range(number):
        db.sql("SELECT stacksaga.publish('crowd', '1', %s)", str(i))
        measure.wait_until(lambda: db.sql('SELECT count(got) = %s FROM returned', i + 1), 'a message is received', pause=0.01)
    return db.session.execute('SELECT count(*)::float8 / %s FROM returned', (number,)).fetchone()[0]


def commits(bench, db, script):
    """How many commits a second, of those that no waiter waits for."""
    return 1 / db.load(script, clients=4, seconds=bench.seconds).per_item()[0]


def run(bench):
    db = bench.database()
    db.sql(PREPARE)
    bench.extent = f'{bench.rounds} rounds of {bench.seconds} s, fsync on'
    halves, idle, woken, ratios = [], [], [], {'write a row': [], 'publish': []}
    scripts = {'write a row': 'INSERT INTO unrelated VALUES (1);', 'publish': "SELECT stacksaga.publish('other', '1');"}
    for i in range(bench.rounds):
        halves.append(statistics.median(latencies(db, RATE * bench.seconds)))
        with waiting(db, CROWD, 'CALL serve()'):
            transactions_in(db, 2)
            idle.append(transactions_in(db, bench.seconds) / bench.seconds)
            woken.append(returned_per_message(db, 20))
        for what, script in scripts.items():
            alone = beside = 0
            for beside_them in (i % 2 == 0, i % 2 == 1):
                if beside_them:
                    with waiting(db, IDLE, "CALL stacksaga.wait_for_messages('idle', '1 minute')"):
                        beside = commits(bench, db, script)
                else:
                    alone = commits(bench, db, script)
            ratios[what].append(beside / alone)
    bench.figure('from the commit that publishes to `receive_messages` returning: half of the messages within', halves, 'ms', at_most=2)
    bench.figure(f'transactions a second while {CROWD} wait for nothing', idle, '', at_most=10)
    bench.figure(f'waits that return for one message, of {CROWD}', woken, '', at_most=1.1)
    for what, values in ratios.items():
        bench.figure(f'commits that {what}, beside {IDLE} that wait for another topic, of those without', values, 'x', at_least=0.95)


measure.main(run, measure.Figures)
