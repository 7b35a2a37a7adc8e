"""Two workers, each in its half of the slots, against one: sagas of three SQL steps."""

import pathlib

import measure
import worker


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_saga.sql').read_text())
    worker.define(db)
    sagas = 8192 if bench.quick else 65536
    bench.extent = f'{sagas} sagas'

    def with_workers(count, saga):
        def measured(_):
            db.set_workers(count)
            db.sql('VACUUM ANALYZE')
            cpu, wal = db.worker_cpu(), db.wal_position()
            # Their commit wakes all workers at once.
            db.sql("SELECT stacksaga.start_saga(%s, '{\"amount\": 20}') FROM generate_series(1, %s)", saga, sagas)
            begun = db.sql('SELECT clock_timestamp()')
            measure.wait_until(lambda: db.sql('SELECT NOT EXISTS (SELECT FROM stacksaga.work)'), 'all sagas end',
                               pause=0.05)
            seconds = db.sql('SELECT EXTRACT(epoch FROM max(finished_at) - %s)::float8 FROM stacksaga.saga', begun)
            db.must("SELECT bool_and(status = 'completed') FROM stacksaga.saga")
            db.must('SELECT count(DISTINCT worker) = %s FROM stacksaga.effect WHERE completed_at > %s', count, begun)
            return measure.Cost(sagas * worker.STEPS, seconds, db.worker_cpu() - cpu, db.wal_position() - wal)
        return measured

    for what, saga in (('steps that insert a row', 'book'), ('steps that do nothing', 'nothing')):
        bench.compare(f'two workers, {what}', with_workers(2, saga), 'one worker', with_workers(1, saga),
                      goal=round(1 / 1.7, 2))


measure.main(run)
