"""Sagas of three SQL steps that one worker does in a second, and a worker in PL/pgSQL that does 256 steps a transaction."""

import pathlib

import measure
import worker

BATCH = 256


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_saga.sql').read_text())
    worker.define(db)
    # As in worker.py: a multiple of the largest batch.
    sagas = 8192 if bench.quick else 65536
    bench.extent = f'{bench.rounds} rounds of {sagas:,} sagas'
    db.set_workers(1)

    def ours(saga):
        db.sql('VACUUM ANALYZE')
        db.sql("SELECT stacksaga.start_saga(%s, '{\"amount\": 20}') FROM generate_series(1, %s)", saga, sagas)
        begun = db.sql('SELECT clock_timestamp()')
        # Not asked all the time: the asking competes with the worker.
        measure.wait_until(lambda: db.sql('SELECT NOT EXISTS (SELECT FROM stacksaga.work)'), 'all sagas end', pause=0.05)
        seconds = db.sql('SELECT EXTRACT(epoch FROM max(finished_at) - %s)::float8 FROM stacksaga.saga', begun)
        db.must("SELECT bool_and(status = 'completed') FROM stacksaga.saga")
        return sagas / seconds

    def theirs(saga):
        db.sql(worker.FILL_THEIRS, sagas)
        db.sql('VACUUM ANALYZE')
        cost = db.load(f'SELECT hand.turn_{saga}({BATCH});', clients=1, transactions=worker.STEPS * sagas // BATCH,
                       items=BATCH)
        db.must('SELECT NOT EXISTS (SELECT FROM hand.work)')
        return cost.items / worker.STEPS / cost.seconds

    for saga, what, at_least in (('book', 'inserts a row', 8000), ('nothing', 'does nothing', None)):
        rates = [(ours(saga), theirs(saga)) for _ in range(bench.rounds)]
        mine, others = zip(*rates)
        bench.figure(f'sagas, each step {what}', mine, 'a second', at_least=at_least)
        bench.figure(f'by hand, each step {what}', others, 'a second')


if __name__ == '__main__':
    measure.main(run, measure.Figures)
