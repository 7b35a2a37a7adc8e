"""Sagas of three steps by services, from start to end, against tables written by hand that nobody claims from,
and against absurd (its absurd.sql is read from where ABSURD_SQL says)."""

import dataclasses
import os
import pathlib

import measure

STEPS = (('reserve', 'stock'), ('charge', 'payments'), ('ship', 'parcels'))

DEFINE = f"""
    SELECT stacksaga.define_saga('order', ARRAY[
        {', '.join(f"stacksaga.queue_step('{step}', queue => '{queue}', compensable => true)" for step, queue in STEPS)}])
"""


NOTHING_CLAIMED = {f'{queue}_claimed': 0 for _, queue in STEPS}
CLAIMED = '(saga_id IS NOT NULL)::int AS claimed, saga_id, lease'


def by_services():
    """Starts a saga, then a turn of each service: one transaction, and one round trip, answers for the step that it
    claimed in its last turn and claims the next one.

    A driver that pipelines sends a turn as two statements; pgbench reads no result within a pipeline, so that here
    it is one, in which the claim depends on the answer and returns one row also when there is nothing to claim.
    """
    turns = ["SELECT * FROM stacksaga.start_saga('order', '{\"amount\": 20}');"]
    for step, queue in STEPS:
        answer = f"stacksaga.complete_step(:{queue}_saga_id, '{step}', :{queue}_lease, '{{\"receipt\": 4711}}')"
        turns.append(f"""
\\if :{queue}_claimed
SELECT {CLAIMED} FROM (SELECT {answer} AS status OFFSET 0) AS done
  LEFT JOIN LATERAL stacksaga.claim_steps('{queue}', left(done.status, 0) || '{queue}-' || :client_id::int) ON true
\\gset {queue}_
\\else
SELECT {CLAIMED} FROM (SELECT) AS one LEFT JOIN stacksaga.claim_steps('{queue}', '{queue}-' || :client_id::int) ON true
\\gset {queue}_
\\endif""")
    return '\n'.join(turns)


def by_hand():
    """Also one round trip for each transaction."""
    def begin(step):
        return f"INSERT INTO hand.saga_log (saga_id, step, status) VALUES (:saga_id::uuid, {step}, 'started');"

    def end(step):
        status = 'completed' if step == len(STEPS) else 'running'
        return f"""
WITH ended AS (
    UPDATE hand.saga_log SET status = 'completed', output = '{{"receipt": 4711}}', ended_at = clock_timestamp()
     WHERE saga_id = :saga_id::uuid AND step = {step} AND status = 'started' RETURNING saga_id
)
UPDATE hand.saga_execution e SET status = '{status}', step = {step}, updated_at = clock_timestamp()
  FROM ended WHERE e.saga_id = ended.saga_id AND e.status = 'running';
"""
    start = """
WITH begun AS (
    INSERT INTO hand.saga_execution (saga, status, step, input) VALUES ('order', 'running', 0, '{"amount": 20}')
    RETURNING saga_id
)
INSERT INTO hand.saga_log (saga_id, step, status) SELECT saga_id, 1, 'started' FROM begun RETURNING saga_id \\gset
"""
    return '\n'.join([start, end(1), begin(2), end(2), begin(3), end(3)])


def bare_commits():
    """As many transactions as by_services() has, of one row each: the floor of anything that commits so often."""
    return "INSERT INTO hand.bare (written_at) VALUES (clock_timestamp());\n" * (1 + len(STEPS))


def by_absurd():
    """A task with three checkpoints, each committed, by the function calls that its clients make."""
    checkpoint = """
SELECT absurd.set_task_checkpoint_state('orders', :task_id, '{step}', '{{"receipt": 4711}}', :run_id);
"""
    return """
SELECT * FROM absurd.spawn_task('orders', 'order', '{"amount": 20}');
SELECT count(*) AS claimed, max(task_id::text) AS task_id, max(run_id::text) AS run_id
  FROM absurd.claim_task('orders', 'till-' || :client_id::int) \\gset
\\if :claimed
""" + ''.join(checkpoint.format(step=step) for step, _ in STEPS) + """
SELECT absurd.complete_run('orders', :run_id);
\\endif
"""


def run(bench):
    db = bench.database()
    folder = pathlib.Path(__file__).parent
    db.sql('CREATE SCHEMA hand')
    db.sql((folder / 'hand_executions.sql').read_text())
    db.sql('CREATE TABLE hand.bare (written_at timestamptz)')
    db.sql(DEFINE)
    absurd = os.environ.get('ABSURD_SQL')
    if absurd:
        db.sql(pathlib.Path(absurd).read_text())
        db.sql("SELECT absurd.create_queue('orders')")

    def sagas(script, completed, clients):
        def measured(_):
            db.sql('VACUUM')
            before = db.sql(completed)
            cost = db.load(script, clients=clients, seconds=bench.seconds, variables=NOTHING_CLAIMED)
            return dataclasses.replace(cost, items=db.sql(completed) - before)
        return measured

    ours = "SELECT count(*) FROM stacksaga.saga WHERE status = 'completed'"
    theirs = "SELECT count(*) FROM hand.saga_execution WHERE status = 'completed'"
    tasks = "SELECT count(*) FROM absurd.t_orders WHERE state = 'completed'"
    for clients in (1, 4, 16):
        bench.compare('three steps by services', sagas(by_services(), ours, clients), 'by hand, without claims',
                      sagas(by_hand(), theirs, clients), clients=clients, goal=1 if clients == 16 else None)
    bare = f'SELECT count(*) / {1 + len(STEPS)} FROM hand.bare'
    bench.compare('three steps by services', sagas(by_services(), ours, 16), 'as many transactions of one INSERT',
                  sagas(bare_commits(), bare, 16), clients=16)
    if absurd:
        bench.compare('three steps by services', sagas(by_services(), ours, 16), 'absurd',
                      sagas(by_absurd(), tasks, 16), clients=16, goal=0.2)
    # All steps of a saga are done, and none is done twice. What a client had claimed at its end is left over.
    db.must(f"""SELECT ({ours}) * {len(STEPS)} = count(*) FROM stacksaga.effect
                 WHERE saga_id IN (SELECT saga_id FROM stacksaga.saga WHERE status = 'completed')""")
    db.must(f"""SELECT ({theirs}) * {len(STEPS)} = count(*) FROM hand.saga_log JOIN hand.saga_execution e USING (saga_id)
                 WHERE e.status = 'completed' AND saga_log.status = 'completed'""")


measure.main(run)
