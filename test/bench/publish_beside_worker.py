"""publish() and start_saga() for services beside a running worker: against INSERT, against no worker."""

import pathlib

import measure
from outbox_peers import PAYLOAD

PREPARE = """
    SELECT stacksaga.create_subscription('service', 'order.*');
    SELECT stacksaga.define_saga('order', ARRAY[
        stacksaga.queue_step('charge', queue => 'payments', compensable => true)])
"""

PUBLISH = f"SELECT stacksaga.publish('order.placed', '{PAYLOAD}', :client_id::text);\n"
INSERT = f"""INSERT INTO hand.outbox (topic, payload, key)
VALUES ('order.placed', '{PAYLOAD}', :client_id::text) RETURNING message_id;\n"""

SAGA = """
SELECT * FROM stacksaga.start_saga('order');
SELECT count(*) AS claimed, max(saga_id::text) AS saga_id, max(lease) AS lease
  FROM stacksaga.claim_steps('payments', 'till-' || :client_id::int) \\gset
\\if :claimed
SELECT stacksaga.complete_step(:saga_id, 'charge', :lease);
\\endif
"""


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_outbox.sql').read_text())
    db.sql(PREPARE)

    def with_workers(count, script, clients):
        def measured(seed):
            db.sql(f'ALTER SYSTEM SET stacksaga.workers = {count}')
            db.sql('SELECT pg_reload_conf()')
            measure.wait_until(
                lambda: db.sql("SELECT count(*) = %s FROM pg_stat_activity"
                               " WHERE backend_type = 'stacksaga worker'", count),
                f'{count} workers run')
            return db.load(script, clients=clients, seconds=bench.seconds, seed=seed)
        return measured

    for clients in (1, 4, 16):
        bench.compare('`publish` for a service', with_workers(1, PUBLISH, clients),
                      'INSERT', with_workers(1, INSERT, clients), clients=clients,
                      goal=round(1 / 0.9, 2))
    for what, script in (('`publish` for a service', PUBLISH), ('a saga of a queue step', SAGA)):
        for clients in (1, 4):
            bench.compare(what, with_workers(1, script, clients), 'no worker',
                          with_workers(0, script, clients), clients=clients, goal=1.1)


measure.main(run)
