"""A worker of a queue and a consumer of an outbox's subscription, with psycopg 3: copy it, and change it.

    Client().work(queue, effect)             calls effect(db, step), which returns the step's output
    Client().consume(subscription, effect)   calls effect(db, message) in the transaction that acknowledges it

Both return after SIGTERM. An error that the effect raises says by its `sqlstate` what this attempt did: of class SG
nothing, and no other will; of class SR but SR504 nothing, and SR425 gives the step back, so that the attempt is not counted.
Any other error is unknown: it may have had its effect. Its `retry_after`, if any, is the pause before the next attempt.
While it runs, step['cancel_requested'] and step['lost'] may become true: then end soon.
"""
import contextlib, datetime, json, os, random, signal, socket, sys, threading, time
import psycopg
from psycopg.rows import dict_row

NAME = f'{socket.gethostname()}-{os.getpid()}'
FAIL, RELEASE = 'fail_step(%s, %s, %s, %s, %s, %s)', 'release_step(%s, %s, %s, %s, %s)'
LOST = 'SG404', 'SG409', 'SG412'  # the step is somebody else's now, or was answered

def connect(): return psycopg.connect(autocommit=True, row_factory=dict_row, prepare_threshold=None, connect_timeout=10)
def log(*words): print(*words, file=sys.stderr)

def failure(error):
    """The arguments from `error` on. What nobody has said may have had its effect."""
    state = getattr(error, 'sqlstate', None) or ''
    means = {'SG': 'non_retryable', 'SR': 'retryable'}.get(state[:2], 'unknown') if state != 'SR504' else 'unknown'
    return str(error).replace('\0', '')[:1000] or repr(error), means, getattr(error, 'retry_after', None)

class Client:
    def __init__(self, lease=30):
        self.lease = datetime.timedelta(seconds=lease)
        self.db = self.answer = self.held = None  # held: the arguments that extend the lease, and whose it is
        self.waits, self.stopping = False, threading.Event()
        # Not in the handler itself, which may interrupt a wait for the event.
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=self.stop).start())

    def stop(self):
        """Ends after what is at hand. A cancel that arrives before its statement does nothing: again."""
        self.stopping.set()
        with contextlib.suppress(psycopg.Error):
            while self.waits:
                self.db.cancel()
                time.sleep(0.1)

    def beat(self, extend):
        """The heartbeat: prolongs the lease of what is at hand, in a session of its own."""
        db = None
        while True:
            time.sleep(self.lease.total_seconds() / 3)
            name, item = self.held or (None, {})
            try:
                if name and not item.get('lost'):
                    db = db or connect()
                    item.update(db.execute(extend, (*name, self.lease)).fetchone())
            except psycopg.Error as error:
                log('heartbeat:', error)
                item['lost'] = (error.sqlstate or '').startswith('SG')  # somebody else's by now
                db = db and db.close()  # the next beat tries again: a lease lasts for three

    def run(self, extend, turn):
        """One turn after the other. After an error it connects again, later and later, and not all at once."""
        threading.Thread(target=self.beat, args=(extend,), daemon=True).start()
        errors = 0
        while self.answer or not self.stopping.is_set():
            try:
                self.db = self.db or connect()
                turn()
                errors = 0
            except psycopg.Error as error:
                log('turn:', error)
                self.db = self.db and self.db.close()
                errors = min(errors + 1, 6)
                self.pause(0.1 * 2 ** errors)

    def pause(self, seconds):
        (time.sleep if self.stopping.is_set() else self.stopping.wait)(seconds * random.uniform(0.5, 1))

    def work(self, queue, effect):
        def turn():
            if self.answer: return self.give_answer()  # of before the connection was lost, or about one that was refused
            claim = 'SELECT * FROM stacksaga.claim_steps(%s, %s, 1, %s)'
            step = self.db.execute(claim, (queue, NAME, self.lease)).fetchone()
            if step is None: return self.wait('steps(%s)', queue)
            name = step['saga_id'], step['step'], step['lease']
            if self.stopping.is_set():  # not begun: another one does it
                self.answer = RELEASE, (*name, '0', 'the service stops')
                return self.give_answer()
            self.held = name, step
            try:
                self.answer = 'complete_step(%s, %s, %s, %s)', (*name, json.dumps(effect(self.db, step)))
            except Exception as error:
                log('step:', error)
                why, means, after = failure(error)
                is_early = getattr(error, 'sqlstate', None) == 'SR425'
                self.answer = (RELEASE, (*name, after or '10 s', why)) if is_early else (FAIL, (*name, why, means, after))
            self.give_answer()
        self.run('SELECT * FROM stacksaga.extend_step(%s, %s, %s, %s)', turn)

    def give_answer(self):
        """Under the same lease it may be repeated, so an answer whose reply was lost is given again."""
        try:
            self.db.execute('SELECT stacksaga.' + self.answer[0], self.answer[1])
        except psycopg.Error as error:
            if not (error.sqlstate or '').startswith(('SG', '22', '54')):
                raise
            log('answer refused:', error)
            if self.answer[0] != FAIL and error.sqlstate not in LOST:  # the output, though the effect has happened
                self.answer = FAIL, (*self.answer[1][:3], failure(error)[0], 'unknown', None)
                return
        self.answer = self.held = None

    def wait(self, call, *arguments):
        try:
            self.waits = True
            if not self.stopping.is_set():
                self.db.execute('CALL stacksaga.wait_for_' + call, arguments)
        except psycopg.errors.QueryCanceled:
            if not self.stopping.is_set():
                raise
        finally:
            self.waits = False

    def consume(self, subscription, effect):
        def turn():
            receive = 'SELECT * FROM stacksaga.receive_messages(%s, %s, 100, %s)', (subscription, NAME, self.lease)
            messages = self.db.execute(*receive).fetchall()
            if not messages:
                return self.wait('messages(%s, consumer => %s)', subscription, NAME)
            self.held = (messages[0]['batch_id'],), {}
            try:
                with self.db.transaction():  # SG412 at its end: somebody else has the batch, nothing was done
                    self.do_batch(messages, effect)
            finally:
                self.held = None
        self.run('SELECT stacksaga.extend_batch(%s, %s) AS lease_until', turn)

    def do_batch(self, messages, effect):
        failed, keys = [], set()
        for message in messages:
            if message['key'] not in keys:  # the later messages of a key wait for one that failed
                try:
                    with self.db.transaction():  # a savepoint
                        effect(self.db, message)
                except Exception as error:
                    if self.db.closed:
                        raise
                    failed.append((message['batch_id'], message['message_id'], *failure(error)))
                    keys |= {message['key']} - {None}
        for arguments in failed:
            self.db.execute('SELECT stacksaga.fail_message(%s, %s, %s, %s, %s)', arguments)
        self.db.execute('SELECT stacksaga.ack_messages(%s)', (messages[0]['batch_id'],))
