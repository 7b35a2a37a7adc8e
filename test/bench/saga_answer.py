"""Steps done by services: claim_steps() and complete_step() against the same by hand."""

import dataclasses
import pathlib

import measure

DEFINE = """
    SELECT stacksaga.define_saga('order', ARRAY[
        stacksaga.queue_step('charge', queue => 'payments', compensable => true)])
"""

FILL_OURS = """
    SELECT stacksaga.start_saga('order', '{"amount": 20}') FROM generate_series(1, %s)
"""

FILL_THEIRS = """
    WITH new AS (
        INSERT INTO hand.saga (saga, input, input_hash)
        SELECT 'order', '{"amount": 20}', sha256('{"amount": 20}') FROM generate_series(1, %s)
        RETURNING saga_id
    )
    INSERT INTO hand.work (saga_id, step, queue) SELECT saga_id, 1, 'payments' FROM new
"""

# A claim may find nothing where another claimer was faster; a service asks again.
OURS = """
SELECT count(*) AS claimed, max(saga_id::text) AS saga_id, max(lease) AS lease
  FROM stacksaga.claim_steps('payments', 'till-' || :client_id::int) \\gset
\\if :claimed
SELECT stacksaga.complete_step(:saga_id, 'charge', :lease, '{"receipt": 4711}');
\\endif
"""

THEIRS = """
WITH claimed AS (
    UPDATE hand.work AS w
       SET lease = nextval('hand.lease'), due_at = clock_timestamp() + '30 seconds',
           attempt = attempt + 1, worker = 'till-' || :client_id::int
      FROM hand.saga AS s
     WHERE s.saga_id = w.saga_id
       AND (w.saga_id, w.step) = (SELECT saga_id, step FROM hand.work
                                   WHERE queue = 'payments' AND due_at <= clock_timestamp()
                                   ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING w.saga_id, w.lease, s.input
)
SELECT count(*) AS claimed, max(saga_id::text) AS saga_id, max(lease) AS lease
  FROM claimed \\gset
\\if :claimed
BEGIN;
UPDATE hand.saga SET status = 'completed', updated_at = clock_timestamp()
 WHERE saga_id = :saga_id::uuid AND status IN ('pending', 'running');
DELETE FROM hand.work WHERE saga_id = :saga_id::uuid AND step = 1 AND lease = :lease::bigint;
INSERT INTO hand.done (saga_id, step, output) VALUES (:saga_id::uuid, 1, '{"receipt": 4711}');
END;
\\endif
"""

# As many transactions, of one row each: the floor of anything that commits so often.
BARE_COMMITS = "INSERT INTO hand.bare (written_at) VALUES (clock_timestamp());\n" * 2


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_saga.sql').read_text())
    db.sql('CREATE TABLE hand.bare (written_at timestamptz)')
    db.sql(DEFINE)
    # Steps a round; some are left over, or the last claims would compete for the last rows.
    steps = 1600 if bench.quick else 8000
    spare = 200
    bench.extent = f'{steps} steps'

    def answers(script, fill, status, clients):
        def measured(_):
            db.sql(fill, steps + spare)
            db.sql('VACUUM ANALYZE')
            before = db.sql(status)
            cost = db.load(script, clients=clients, transactions=steps // clients)
            # A transaction whose claim found nothing is no step done, but its cost counts.
            return dataclasses.replace(cost, items=db.sql(status) - before)
        return measured

    ours = "SELECT count(*) FROM stacksaga.saga WHERE status = 'completed'"
    theirs = "SELECT count(*) FROM hand.done"

    def commits(clients):
        return lambda _: db.load(BARE_COMMITS, clients=clients, transactions=steps // clients)

    for clients in (1, 4, 16):
        bench.compare('`claim_steps` + `complete_step`', answers(OURS, FILL_OURS, ours, clients),
                      'UPDATE … SKIP LOCKED; UPDATE, DELETE, INSERT',
                      answers(THEIRS, FILL_THEIRS, theirs, clients), clients=clients, goal=1, cpu_goal=1.1)
    for clients in (1, 4, 16):
        bench.compare('as many transactions of one INSERT', commits(clients), 'UPDATE … SKIP LOCKED; UPDATE, DELETE, INSERT',
                      answers(THEIRS, FILL_THEIRS, theirs, clients), clients=clients)


if __name__ == '__main__':
    measure.main(run)
