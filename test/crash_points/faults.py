"""Items whose reading fails with an error of the test's choice (extension/pg/fault_point.hpp): such an item stops no
other one, is put off three times where the error may pass, and then its saga parks or it is dead."""

import os
import pathlib
import time
import uuid

import psycopg

from server import DATABASE

# Those of the classes that may pass, and two that may not.
PASSING = ('53200', '57P03', '40001', '08006')
LASTING = ('XX001', '22023')
PUT_OFFS = 3
# Longer than the longest pause.
PAUSE = 70
PATIENCE = 60


class Faults:
    """The file by which points fail."""

    def __init__(self):
        self.file = pathlib.Path(os.environ['PGDATA']) / 'stacksaga.faults'

    def set(self, *faults):
        """Each: an SQLSTATE, the id of an item, the name of a point. The file appears whole."""
        new = self.file.with_suffix('.new')
        new.write_text(''.join(f'{sqlstate} {item} {point}\n' for sqlstate, item, point in faults))
        new.chmod(0o644)
        new.rename(self.file)

    def clear(self):
        self.file.unlink(missing_ok=True)


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


class SagaPlace(Place):
    """Steps of sagas."""
    points = ('read: results',)
    saga = ''

    def __init__(self, session):
        super().__init__(session)
        self.seen = set()

    def make(self):
        made = [self.session.value('SELECT saga_id FROM stacksaga.start_saga(%s)', self.saga) for _ in range(2)]
        self.complete_first()
        return made

    def complete_first(self):
        self.session.rows("""SELECT stacksaga.complete_step(c.saga_id, c.step, c.lease, '{"n": 1}')
                               FROM stacksaga.claim_steps(%s, 'w', 100) AS c""", f'{self.saga} first')

    def take(self):
        self.session.rows('SELECT stacksaga.run_pending()')
        done = set(self.session.column(
            "SELECT saga_id FROM stacksaga.sagas WHERE saga = %s AND status = 'completed'", self.saga))
        new, self.seen = done - self.seen, done
        return sorted(new)

    def end(self, item):
        return self.session.rows('SELECT status, last_error FROM stacksaga.sagas WHERE saga_id = %s', item)[0]

    def charged(self, item):
        return self.session.value('SELECT count(*) FROM stacksaga.failure WHERE saga_id = %s', item)


class Claims(SagaPlace):
    name, saga = 'claim_steps', 'fault claim'

    def take(self):
        return sorted(self.session.column("""SELECT saga_id, stacksaga.complete_step(saga_id, step, lease)
                                               FROM stacksaga.claim_steps(%s, 'w', 100)""", f'{self.saga} second'))


class RunPending(SagaPlace):
    name, saga = 'run_pending', 'fault pending'


class FinishedChild(SagaPlace):
    name, saga, points = 'a finished child', 'fault parent', ("read: child's output",)

    def complete_first(self):
        self.session.rows('SELECT stacksaga.run_pending()')
        super().complete_first()

    def read(self, item):
        return self.session.value('SELECT saga_id FROM stacksaga.sagas WHERE parent_id = %s', item)


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


class Receive(MessagePlace):
    name, subscription = 'receive_messages', 'fault receive'

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
    name, subscription = 'receive_messages without a copy', 'fault stuck'
    points, keys = ('read: message', 'copy: message'), ('one', 'another')


DEFINITIONS = """
    CREATE TABLE fault_handled (message_id uuid, is_whole boolean, attempt integer);
    CREATE FUNCTION fault_act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT call.results $$;
    CREATE FUNCTION fault_handle(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
        INSERT INTO fault_handled VALUES (m.message_id, length(m.payload ->> 'text') = 32 * 400, m.attempt)
    $$;
    SELECT stacksaga.define_saga('fault claim', ARRAY[
               stacksaga.queue_step('a', 'fault claim first', compensable => false),
               stacksaga.queue_step('b', 'fault claim second', compensable => false)]),
           stacksaga.define_saga('fault pending', ARRAY[
               stacksaga.queue_step('a', 'fault pending first', compensable => false),
               stacksaga.sql_step('b', 'fault_act(stacksaga.step_call)')]),
           stacksaga.define_saga('fault deadline', ARRAY[
               stacksaga.queue_step('a', 'fault nobody', compensable => false)], deadline => '500 milliseconds'),
           stacksaga.define_saga('fault child', ARRAY[
               stacksaga.queue_step('a', 'fault parent first', compensable => false)]);
    SELECT stacksaga.define_saga('fault parent', ARRAY[stacksaga.child_step('a', 'fault child')]),
           stacksaga.create_subscription('fault receive', 'fault receive'),
           stacksaga.create_subscription('fault stuck', 'fault stuck', stop_on_first_failure => false),
           stacksaga.create_subscription('fault handler', 'fault handler', 'fault_handle(stacksaga.message)');
"""


def tries(place, faults, sqlstate):
    """An item that fails until its end, beside one that does not. Yields what is wrong."""
    bad, good = place.make()
    faults.set(*((sqlstate, place.read(bad), point) for point in place.points))
    for time_no in range(PUT_OFFS if sqlstate in PASSING else 0):
        taken = place.take()
        if taken != ([good] if time_no == 0 else []):
            yield f'put off {time_no} times, {taken} were taken'
        if place.end(bad)[0] == 'parked' or place.charged(bad) != 0:
            yield f'after {time_no + 1} tries it is {place.end(bad)}'
        if place.take():
            yield 'it is not put off'
        place.session.wait(PAUSE)
    taken = place.take()
    if taken != ([] if sqlstate in PASSING else [good]):
        yield f'at the last try {taken} were taken'
    status, error = place.end(bad)
    if status != 'parked' or 'the test wants' not in (error or ''):
        yield f'at its end it is {status}: {error}'
    place.session.wait(PAUSE)
    if place.take():
        yield 'it was taken after its end'
    faults.clear()


def passes(place, faults):
    """An error that passes before it has come too often: the item is taken as if nothing had been."""
    bad, good = place.make()
    faults.set(*((PASSING[0], place.read(bad), point) for point in place.points))
    taken = place.take()
    place.session.wait(PAUSE)
    taken += place.take()
    faults.clear()
    place.session.wait(PAUSE)
    if taken != [good]:
        yield f'{taken} were taken while it failed'
    if (taken := place.take()) != [bad] or place.charged(bad) != 0:
        yield f'{taken} were taken when it had passed, and {place.charged(bad)} attempts were charged'


def until(condition, patience=PATIENCE):
    """Whether the condition has become true."""
    deadline = time.monotonic() + patience
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return is_true


class Handled(MessagePlace):
    """Messages that a worker hands to a function."""
    subscription = 'fault handler'

    def is_handled(self, item):
        return self.session.rows('SELECT is_whole, attempt FROM fault_handled WHERE message_id = %s', item) == [(True, 1)]


def by_a_worker(session, faults):
    """A step, a deadline and messages that a worker cannot read, by its own clock. Yields what is wrong."""
    session.ahead = 0
    session.wait(0)
    steps, messages = RunPending(session), Handled(session)
    bad, good = (session.value("SELECT saga_id FROM stacksaga.start_saga('fault pending')") for _ in range(2))
    claimed = session.rows("SELECT saga_id, step, lease FROM stacksaga.claim_steps('fault pending first', 'w', 100)")
    late = session.value("SELECT saga_id FROM stacksaga.start_saga('fault deadline')")
    ids = [uuid.uuid4() for _ in range(3)]
    faults.set(('53200', bad, 'read: results'), ('53200', late, 'read: notice'), ('53200', ids[0], 'read: message'),
               ('XX001', ids[1], 'read: message'))
    begun = time.monotonic()
    for claim in claimed:
        session.rows("SELECT stacksaga.complete_step(%s, %s, %s, '{}')", *claim)
    for message in ids:
        messages.publish(message_id=message)
    if not until(lambda: steps.end(good)[0] == 'completed' and messages.is_handled(ids[2])):
        yield 'a worker does not go on with others'
    if not until(lambda: messages.end(ids[1])[0] == 'parked'):
        yield 'a message that cannot be read is not dead'
    if time.monotonic() - begun < 5 and 'parked' in (place.end(item)[0] for place, item in (
            (steps, bad), (steps, late), (messages, ids[0]))):
        yield 'a worker does not put an item off'
    for place, item, what in ((steps, bad, 'step'), (steps, late, 'deadline'), (messages, ids[0], 'message')):
        if not until(lambda place=place, item=item: place.end(item)[0] == 'parked') or \
                'the test wants' not in place.end(item)[1] or place.charged(item) != (1 if what == 'step' else 0):
            yield f'a {what} that a worker cannot read is {place.end(item)}, {place.charged(item)} attempts are charged'
            return
    if time.monotonic() - begun < 5: # 1, 2 and 4 s, less jitter
        yield 'a worker does not put items off'
    faults.clear()
    # Both sagas go on when the cause is gone.
    for item, status in ((bad, 'completed'), (late, 'failed')):
        session.rows("SELECT stacksaga.retry_saga(%s, 'repaired')", item)
        if not until(lambda item=item, status=status: steps.end(item)[0] == status):
            yield f'after a retry it is {steps.end(item)}'


def every_fault(connect):
    """All of them; returns what is wrong."""
    connect.run(DEFINITIONS)
    faults, session, wrong = Faults(), Session(), []
    checks = []
    for kind in (Claims, RunPending, FinishedChild, Receive, Stuck):
        place = kind(session)
        checks += [(f'{place.name}, {sqlstate}', tries(place, faults, sqlstate)) for sqlstate in PASSING + LASTING]
        checks.append((f'{place.name}, passing', passes(place, faults)))
    checks.append(('worker', by_a_worker(session, faults)))
    for what, check in checks:
        for text in check:
            wrong.append(f'{what}: {text}')
            print(f'not ok: {wrong[-1]}', flush=True)
    print(f'faults of five places and a worker: {len(wrong)} failures')
    return wrong
