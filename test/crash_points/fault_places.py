"""Where items are read whose reading faults.py has fail: how two are made, taken, and looked at."""

import psycopg

from server import DATABASE


class Session:
    """A session whose clock is days ahead of the workers': what it starts is due for it alone."""

    def __init__(self):
        self.connection = psycopg.connect(dbname=DATABASE, autocommit=True)
        self.ahead = 5 * 86400
        self.wait(0)

    def wait(self, seconds):
        """Sets the clock on."""
        self.ahead += seconds
        self.connection.execute(f"SET stacksaga.clock_offset = '{self.ahead} seconds'")

    def rows(self, sql, *parameters):
        return self.connection.execute(sql, parameters or None).fetchall()

    def column(self, sql, *parameters):
        return [row[0] for row in self.rows(sql, *parameters)]

    def value(self, sql, *parameters):
        return self.rows(sql, *parameters)[0][0]


class Place:
    """Where items are read: how two are made, taken, and looked at."""
    name = ''
    points = ()

    def __init__(self, session):
        self.session = session

    def make(self):
        """Two items that are due."""
        raise NotImplementedError

    def read(self, item):
        """What is read of the item."""
        return item

    def take(self):
        """The items that were taken now."""
        raise NotImplementedError

    def end(self, item):
        """The state and the error of the item."""
        raise NotImplementedError

    def charged(self, item):
        """How many attempts the item has failed."""
        raise NotImplementedError

    def repair(self, item):
        """What a person does once the cause is gone. Returns what is taken then."""
        raise NotImplementedError

    def wrong(self, item):
        """What is wrong in the end with an item that was repaired."""
        del item
        return ()


class SagaPlace(Place):
    """Steps of sagas."""
    points = ('read: results',)
    saga = ''
    step_no = 2
    ended = 'completed'

    def __init__(self, session):
        super().__init__(session)
        self.seen = set()

    def make(self):
        self.seen = self.done()
        made = [self.session.value('SELECT saga_id FROM stacksaga.start_saga(%s)', self.saga) for _ in range(2)]
        self.complete_first()
        return made

    def complete_first(self):
        self.session.rows("""SELECT stacksaga.complete_step(c.saga_id, c.step, c.lease, '{"n": 1}')
                               FROM stacksaga.claim_steps(%s, 'w', 100) AS c""", f'{self.saga} first')

    def done(self):
        return set(self.session.column(
            'SELECT saga_id FROM stacksaga.sagas WHERE saga = %s AND status = %s', self.saga, self.ended))

    def take(self):
        self.session.rows('SELECT stacksaga.run_pending()')
        done = self.done()
        new, self.seen = done - self.seen, done
        return sorted(new)

    def end(self, item):
        return self.session.rows('SELECT status, last_error FROM stacksaga.sagas WHERE saga_id = %s', item)[0]

    def charged(self, item):
        return self.session.value('SELECT count(*) FROM stacksaga.failure WHERE saga_id = %s AND step_no = %s', item, self.step_no)

    def repair(self, item):
        self.session.rows("SELECT stacksaga.retry_saga(%s, 'repaired')", item)
        return [item]


class Claims(SagaPlace):
    name, saga = 'claims', 'fault claim'

    def take(self):
        return sorted(self.session.column("""SELECT saga_id, stacksaga.complete_step(saga_id, step, lease)
                                               FROM stacksaga.claim_steps(%s, 'w', 100)""", f'{self.saga} second'))


class RunPending(SagaPlace):
    name, saga = 'run-pending', 'fault pending'


class Deadline(SagaPlace):
    name, saga, ended, points = 'deadline', 'fault deadline', 'failed', ('read: notice',)

    def complete_first(self):
        self.session.wait(1)


class FinishedChild(SagaPlace):
    name, saga, step_no, points = 'finished-child', 'fault parent', 1, ("read: child's output",)

    def complete_first(self):
        self.session.rows('SELECT stacksaga.run_pending()')
        super().complete_first()

    def read(self, item):
        return self.session.value('SELECT saga_id FROM stacksaga.sagas WHERE parent_id = %s', item)


class UnreadParent(FinishedChild):
    """Parents whose own row cannot be read, so that they cannot be parked either."""
    name, points = 'unread-parent', ('read: saga',)

    def read(self, item):
        return item

    def is_found(self, item):
        return self.session.value("""SELECT count(*) > 0 FROM stacksaga.doctor()
                                      WHERE check_name = 'put_off' AND strpos(detail, %s) > 0""", str(item))


class CancelledParent(FinishedChild):
    """A parent that is cancelled instead: what its child did is undone all the same."""
    name, saga, ended = 'cancelled-parent', 'fault cancelled', 'failed'

    def take(self):
        self.session.rows('SELECT stacksaga.run_pending()')
        self.session.rows("""SELECT stacksaga.cancel_saga(s.saga_id, 'its child is done') FROM stacksaga.sagas AS s
                              WHERE s.saga = %s AND s.status = 'running' AND s.current_step = 'b'""", self.saga)
        return super().take()

    def repair(self, item):
        self.session.rows("SELECT stacksaga.cancel_saga(%s, 'not wanted')", item)
        return [item]

    def wrong(self, item):
        if (status := self.session.column('SELECT status FROM stacksaga.sagas WHERE parent_id = %s', item)) != ['failed']:
            yield f'its child is {status}'


class ParentsRequest(SagaPlace):
    """Children that have completed, of parents that compensate."""
    name, saga, step_no, ended, points = 'parents-request', 'fault undone', 1, 'failed', ('read: notice',)

    def complete_first(self):
        self.session.rows('SELECT stacksaga.run_pending()')
        super().complete_first()
        self.session.rows('SELECT stacksaga.run_pending()')
        self.session.rows("""SELECT stacksaga.fail_step(c.saga_id, c.step, c.lease, 'no', 'non_retryable')
                               FROM stacksaga.claim_steps(%s, 'w', 100) AS c""", f'{self.saga} second')

    def child(self, item):
        return self.session.rows('SELECT saga_id, status FROM stacksaga.sagas WHERE parent_id = %s', item)[0]

    def read(self, item):
        return self.child(item)[0]

    def wrong(self, item):
        if (status := self.child(item)[1]) != 'failed':
            yield f'its child is {status}'


class UndoneByHand(ParentsRequest):
    """A person says that the step is undone: nothing of the request is left, and the child is as it was."""
    name = 'undone-by-hand'

    def repair(self, item):
        self.session.rows("SELECT stacksaga.resolve_step(%s, 'a', 'done', reason => 'undone', direction => 'compensate')", item)
        return [item]

    def wrong(self, item):
        child, status = self.child(item)
        left = self.session.column('SELECT purpose::text FROM stacksaga.work WHERE saga_id IN (%s, %s)', item, child)
        if status != 'completed' or left:
            yield f'its child is {status}, and {left} are left'


class ChildUndone(ParentsRequest):
    """Children that have compensated, of parents that wait for it."""
    name = 'compensated-child'

    def read(self, item):
        return item


class MessagePlace(Place):
    """Messages of a subscription. Their payload is too large for the row of the log."""
    points = ('read: message',)
    subscription = ''
    keys = (None, None)

    def make(self):
        return [self.publish(key) for key in self.keys]

    def publish(self, key=None, message_id=None):
        return self.session.value("""SELECT stacksaga.publish(%s, jsonb_build_object('text',
                (SELECT string_agg(md5(i || random()::text), '') FROM generate_series(1, 400) AS i)),
                key => %s, message_id => %s)""", self.subscription, key, message_id)

    def end(self, item):
        dead = self.session.rows('SELECT last_error FROM stacksaga.dead_messages WHERE message_id = %s', item)
        return ('parked', dead[0][0]) if dead else ('waits', None)

    def charged(self, item):
        return self.session.value("""SELECT coalesce((SELECT attempts FROM stacksaga.dead_messages
                                       WHERE message_id = %s), 0)""", item)

    def repair(self, item):
        self.session.rows("SELECT stacksaga.redrive_message(%s, %s, 'repaired')", self.subscription, item)
        return [item]


class Receive(MessagePlace):
    name, subscription = 'receive', 'fault receive'

    def take(self):
        got = self.session.rows("""SELECT message_id, batch_id, length(payload ->> 'text') = 32 * 400, attempt
                                     FROM stacksaga.receive_messages(%s, 'c', 100)""", self.subscription)
        for batch in {row[1] for row in got}:
            self.session.rows('SELECT stacksaga.ack_messages(%s)', batch)
        wrong = [row for row in got if not row[2] or row[3] != 1]
        if wrong:
            raise ValueError(f'messages without their payload, or charged: {wrong}')
        return sorted(row[0] for row in got)


class Stuck(Receive):
    """Messages that cannot be copied out of the log either: their partition waits, others do not."""
    name, subscription = 'stuck', 'fault stuck'
    points, keys = ('read: message', 'copy: message'), ('one', 'another')


class Command(Receive):
    """Commands of message steps: whether their attempt still has its lease is read of them, too."""
    name, subscription, points = 'command', 'fault command', ('read: command', 'read: message')

    def publish(self, key=None, message_id=None):
        saga_id = self.session.value("""SELECT saga_id FROM stacksaga.start_saga('fault command', jsonb_build_object('text',
                (SELECT string_agg(md5(i || random()::text), '') FROM generate_series(1, 400) AS i)))""")
        self.session.rows('SELECT stacksaga.run_pending()')
        return self.session.value('SELECT message_id FROM stacksaga.outbox_message WHERE key = %s', str(saga_id))

    def take(self):
        got = self.session.rows("""SELECT m.message_id, m.batch_id, stacksaga.complete_step(
                       (m.payload ->> 'saga_id')::uuid, m.payload ->> 'step', (m.payload ->> 'lease')::bigint)
                  FROM stacksaga.receive_messages(%s, 'c', 100) AS m""", self.subscription)
        for batch in {row[1] for row in got}:
            self.session.rows('SELECT stacksaga.ack_messages(%s)', batch)
        return sorted(row[0] for row in got)


class UnreadLease(Command):
    """Commands of which that alone cannot be read: they are delivered."""
    name, points = 'lease-of-command', ('read: command',)


class Fallback(MessagePlace):
    """Messages that a service gave up on, for a function."""
    name, subscription = 'fallback', 'fault fallback'

    def make(self):
        made = super().make()
        batches = self.session.column("""SELECT DISTINCT batch_id FROM (
                SELECT r.batch_id, stacksaga.fail_message(r.batch_id, r.message_id, 'no', 'non_retryable')
                  FROM stacksaga.receive_messages(%s, 'c', 100) AS r OFFSET 0) AS failed""", self.subscription)
        for batch in batches:
            self.session.rows('SELECT stacksaga.ack_messages(%s)', batch)
        return made

    def take(self):
        self.session.rows('SELECT stacksaga.run_pending()')
        return sorted(self.session.column('DELETE FROM fault_fallen_back RETURNING message_id'))

    def charged(self, item):
        return max(super().charged(item) - 1, 0) # one is the service's

    def repair(self, item):
        super().repair(item) # it goes to the service again
        for batch in self.session.column("SELECT batch_id FROM stacksaga.receive_messages(%s, 'c', 100)", self.subscription):
            self.session.rows('SELECT stacksaga.ack_messages(%s)', batch)
        return []


class Handled(MessagePlace):
    """Messages that a worker hands to a function."""
    subscription = 'fault handler'

    def is_handled(self, item):
        return self.session.rows('SELECT is_whole, attempt FROM fault_handled WHERE message_id = %s', item) == [(True, 1)]
