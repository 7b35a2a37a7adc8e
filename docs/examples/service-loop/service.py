# A service that does the steps of the queue "payments". Wants libpq's variables (PGHOST, ...).
import os, re, signal
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

COMPLETE = 'SELECT * FROM stacksaga.complete_steps(%s::uuid[], %s::text[], %s::bigint[], %s::jsonb[])'
CLAIM = "SELECT * FROM stacksaga.claim_steps('payments', %s, 10, %s::interval)"
FAIL = 'SELECT stacksaga.fail_step(%s, %s, %s, %s, %s)'
RELEASE = "SELECT * FROM stacksaga.release_steps(%s::uuid[], %s::text[], %s::bigint[], reason => 'the service stops')"
WAIT = "CALL stacksaga.wait_for_steps('payments')"
worker = f'till-{os.getpid()}'
lease = os.environ.get('LEASE', '30 seconds')

class Refused(Exception):
    """It had no effect, and no repetition will have one."""

def charge(db, step):
    """The work. A step may come twice, and its compensation before it: one row keeps both from harm."""
    key = re.sub(':(act|compensate)', '', step['idempotency_key'])
    insert = """INSERT INTO charge VALUES (%s, %s, %s) ON CONFLICT (step) DO UPDATE SET
                    undone = charge.undone OR excluded.undone RETURNING undone"""
    undo = step['direction'] == 'compensate'
    undone = db.execute(insert, (key, step['input']['amount'], undo)).fetchone()['undone']
    if undone and not undo:
        raise Refused('it was undone before it came')
    return {'undone' if undo else 'charged': step['input']['amount']}

class Service:
    def __init__(self, db):
        self.db = db
        self.stops = self.waits = False
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_):
        """Ends after the step at hand, and gives the others back; a wait is cancelled."""
        self.stops = True
        if self.waits:
            self.db.cancel()

    def do(self, step):
        """Does a step and returns the answer to it, none if it failed."""
        name = step['saga_id'], step['step'], step['lease']
        try:
            return [(*name, Jsonb(charge(self.db, step)))]
        except (Refused, psycopg.IntegrityError) as error:  # nothing was written, and would not be the next time
            return self.fail(name, str(error))

    def fail(self, name, why):
        try:
            self.db.execute(FAIL, (*name, why, 'non_retryable'))
        except psycopg.Error as refused:
            if refused.sqlstate != 'SG412':
                raise
            print(*name[:2], refused.sqlstate, flush=True)
        return []

    def turn(self, done):
        """Answers for what is done and claims what is next: one transaction, one round trip."""
        with self.db.pipeline():  # without BEGIN one transaction, until its end
            answers = self.db.execute(COMPLETE, [[row[i] for row in done] for i in range(4)])
            claims = None if self.stops else self.db.execute(CLAIM, (worker, lease))
        for answer in answers:
            if answer['sqlstate']:  # SG412: the lease ran out, and somebody else has the step
                print(answer['saga_id'], answer['step'], answer['sqlstate'], flush=True)
        return claims.fetchall() if claims else []

    def release(self, steps):
        """Gives back what it has claimed and not begun: no attempt is counted, and another service does it at once."""
        names = [[step[column] for step in steps] for column in ('saga_id', 'step', 'lease')]
        for answer in self.db.execute(RELEASE, names):
            if answer['sqlstate']:
                print(answer['saga_id'], answer['step'], answer['sqlstate'], flush=True)

    def wait(self):
        try:
            self.waits = True
            if not self.stops:
                self.db.execute(WAIT)
        except psycopg.errors.QueryCanceled:
            if not self.stops:
                raise
        finally:
            self.waits = False

    def serve(self):
        done = []
        while done or not self.stops:
            steps = self.turn(done)
            done = []
            for i, step in enumerate(steps):
                if self.stops:
                    self.release(steps[i:])
                    break
                done += self.do(step)
            if not steps:
                self.wait()

# Autocommit: CALL runs outside of a transaction block.
with psycopg.connect(autocommit=True, row_factory=dict_row) as db:
    Service(db).serve()
