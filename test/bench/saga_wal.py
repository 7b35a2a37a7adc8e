"""WAL: bytes of a saga of three SQL steps, and of a step by a service, against the same by hand."""

import pathlib

import measure
import saga_answer
import worker

TURN = 256


def run(bench):
    db = bench.database()
    db.sql((pathlib.Path(__file__).parent / 'hand_saga.sql').read_text())
    worker.define(db)
    db.sql(saga_answer.DEFINE)
    sagas = (4 if bench.quick else 16) * TURN
    rounds = 3 if bench.quick else 7
    bench.extent = f'{rounds} rounds of {sagas} sagas, full_page_writes off'
    measure.wait_until(lambda: db.sql('SELECT count(*) = 1 FROM stacksaga.worker_stats'), 'the worker works')

    def bytes_of(start, work, ends):
        """What starting a saga writes, and what its work does, each for one saga."""
        db.sql('VACUUM')
        before = db.wal_position()
        start()
        begun = db.wal_position()
        work()
        measure.wait_until(lambda: db.sql(ends), 'all is done', pause=0.02)
        return (begun - before) / sagas, (db.wal_position() - begun) / sagas

    def by_worker():
        # In one transaction that the worker does not see until it commits.
        def start():
            db.sql('BEGIN')
            db.sql("SELECT stacksaga.start_saga('book', '{\"amount\": 20}') FROM generate_series(1, %s)", sagas)
        return bytes_of(start, lambda: db.sql('COMMIT'), 'SELECT NOT EXISTS (SELECT FROM stacksaga.work)')

    def by_hand():
        def turns():
            for _ in range(sagas * worker.STEPS // TURN):
                db.sql(f'SELECT hand.turn_book({TURN})')
        return bytes_of(lambda: db.sql(worker.FILL_THEIRS, sagas), turns, 'SELECT NOT EXISTS (SELECT FROM hand.work)')

    def by_service(fill, script, ends):
        return bytes_of(lambda: db.sql(fill, sagas),
                        lambda: db.load(script, clients=1, transactions=sagas), ends)

    def figures(what, ours, theirs):
        mine, other = zip(*((ours(), theirs()) for _ in range(rounds)))
        for n, part in enumerate((f'starting {what[0]}', what[1])):
            bench.figure(part, [m[n] for m in mine], 'bytes')
            bench.figure(f'{part}, by hand', [t[n] for t in other], 'bytes')
            bench.figure(f'{part}, against by hand', [m[n] / t[n] for m, t in zip(mine, other)], '×')

    figures(('a saga of three SQL steps', 'running its steps, which insert a row each, in batches'),
            by_worker, by_hand)
    db.must('SELECT count(*) = %s FROM ledger', rounds * sagas * worker.STEPS)
    db.must('SELECT count(*) = %s FROM hand.ledger', rounds * sagas * worker.STEPS)
    figures(('a saga of a queue step', 'claiming and completing its step, one at a time'),
            lambda: by_service(saga_answer.FILL_OURS, saga_answer.OURS,
                               'SELECT NOT EXISTS (SELECT FROM stacksaga.work)'),
            lambda: by_service(saga_answer.FILL_THEIRS, saga_answer.THEIRS,
                               'SELECT NOT EXISTS (SELECT FROM hand.work)'))


measure.main(run, measure.Figures)
