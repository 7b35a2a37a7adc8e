"""Items whose reading fails with an error of the test's choice (extension/pg/fault_point.hpp): such an item stops no
other one, is put off three times where the error may pass, and then its saga parks or it is dead."""

import os
import pathlib
import time
import uuid

import psycopg

from fault_places import (CancelledParent, ChildUndone, Claims, Command, Deadline, Fallback, FinishedChild, Handled,
                          ParentsRequest, Receive, RunPending, Session, Stuck, UndoneByHand, UnreadLease,
                          UnreadParent)
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


DEFINITIONS = """
    CREATE TABLE fault_handled (message_id uuid, is_whole boolean, attempt integer);
    CREATE TABLE fault_fallen_back (message_id uuid);
    CREATE TABLE fault_gate ();
    CREATE FUNCTION fault_act(call stacksaga.step_call) RETURNS jsonb LANGUAGE sql AS $$ SELECT call.results $$;
    CREATE FUNCTION fault_wait(call stacksaga.step_call) RETURNS jsonb LANGUAGE plpgsql AS $$
        BEGIN PERFORM FROM fault_gate; RETURN '1'; END
    $$;
    CREATE FUNCTION fault_handle(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
        INSERT INTO fault_handled VALUES (m.message_id, length(m.payload ->> 'text') = 32 * 400, m.attempt)
    $$;
    CREATE FUNCTION fault_fall_back(m stacksaga.message) RETURNS void LANGUAGE sql AS $$
        INSERT INTO fault_fallen_back SELECT m.message_id WHERE length(m.payload ->> 'text') = 32 * 400
    $$;
    SELECT stacksaga.define_saga('fault claim', ARRAY[
               stacksaga.queue_step('a', 'fault claim first', compensable => false),
               stacksaga.queue_step('b', 'fault claim second', compensable => false)]),
           stacksaga.define_saga('fault pending', ARRAY[
               stacksaga.queue_step('a', 'fault pending first', compensable => false),
               stacksaga.sql_step('b', 'fault_act(stacksaga.step_call)')]),
           stacksaga.define_saga('fault slow', ARRAY[
               stacksaga.sql_step('a', 'fault_wait(stacksaga.step_call)', timeout => '10 minutes')]),
           stacksaga.define_saga('fault deadline', ARRAY[
               stacksaga.queue_step('a', 'fault nobody', compensable => false)], deadline => '500 milliseconds'),
           stacksaga.define_saga('fault command', ARRAY[
               stacksaga.message_step('a', 'fault command', timeout => '1 hour')]);
    SELECT stacksaga.define_saga(s || ' child', ARRAY[stacksaga.queue_step('a', s || ' first', compensable => false)])
      FROM unnest('{fault parent,fault cancelled,fault undone}'::text[]) AS s;
    SELECT stacksaga.define_saga('fault parent', ARRAY[stacksaga.child_step('a', 'fault parent child')]),
           stacksaga.define_saga(s, ARRAY[
               stacksaga.child_step('a', s || ' child', timeout => '1 hour'),
               stacksaga.queue_step('b', s || ' second', compensable => false)])
      FROM unnest('{fault cancelled,fault undone}'::text[]) AS s;
    SELECT stacksaga.create_subscription('fault receive', 'fault receive'),
           stacksaga.create_subscription('fault stuck', 'fault stuck', stop_on_first_failure => false),
           stacksaga.create_subscription('fault command', 'fault command'),
           stacksaga.create_subscription('fault fallback', 'fault fallback',
                                         fallback => 'fault_fall_back(stacksaga.message)'),
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
    expected = place.repair(bad)
    if (taken := place.take()) != expected:
        yield f'{taken} were taken when it was repaired, and it is {place.end(bad)}'
    yield from place.wrong(bad)


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


def by_the_timekeeper(session, faults):
    """Deadlines that the timekeeper cannot read while the only worker is in a handler. Yields what is wrong."""
    session.ahead = 0
    session.wait(0)
    place = RunPending(session)
    passing, lasting, good = (uuid.uuid4() for _ in range(3))
    faults.set(('53200', passing, 'read: notice'), ('XX001', lasting, 'read: notice'))
    with psycopg.connect(dbname=DATABASE) as gate:
        gate.execute('LOCK TABLE fault_gate')
        slow = session.value("SELECT saga_id FROM stacksaga.start_saga('fault slow')")
        if not until(lambda: session.column('SELECT saga_id FROM stacksaga_internal.handlers_at_work()') == [slow]):
            yield 'the worker is not in its handler'
        begun = time.monotonic()
        for item in (passing, lasting, good):
            session.rows("SELECT stacksaga.start_saga('fault deadline', saga_id => %s)", item)
        if not until(lambda: place.end(good)[0] == 'failed' and place.end(lasting)[0] == 'parked'):
            yield f'beside a handler they are {place.end(good)} and {place.end(lasting)}'
            return
        if not until(lambda: place.end(passing)[0] == 'parked'):
            yield f'it is put off for ever: {place.end(passing)}'
            return
        if time.monotonic() - begun < 5: # 1, 2 and 4 s, less jitter
            yield 'it is not put off'
        if session.column('SELECT saga_id FROM stacksaga_internal.handlers_at_work()') != [slow]:
            yield 'the worker has taken part'
    for item in (passing, lasting):
        if 'the test wants' not in place.end(item)[1] or session.value(
                'SELECT count(*) FROM stacksaga.failure WHERE saga_id = %s', item) != 0:
            yield f'it is {place.end(item)}'
    faults.clear()
    for item in (passing, lasting):
        session.rows("SELECT stacksaga.retry_saga(%s, 'repaired')", item)
        if not until(lambda item=item: place.end(item)[0] == 'failed'):
            yield f'after a retry it is {place.end(item)}'


def alone(place, faults):
    """A part that is read on the way and not needed: both are taken at once."""
    made = place.make()
    faults.set(*((sqlstate, item, point) for item, sqlstate in zip(made, (PASSING[0], LASTING[0]))
                 for point in place.points))
    if (taken := place.take()) != sorted(made):
        yield f'{taken} were taken'
    faults.clear()


def endless(place, faults, sqlstate):
    """What can be neither read nor settled: it stops nothing, is tried once a minute, and doctor() names it."""
    bad, good = place.make()
    faults.set(*((sqlstate, place.read(bad), point) for point in place.points))
    for time_no in range(2 * PUT_OFFS):
        if (taken := place.take()) != ([good] if time_no == 0 else []):
            yield f'put off {time_no} times, {taken} were taken'
        if (is_found := place.is_found(bad)) != (time_no >= PUT_OFFS):
            yield f'after {time_no + 1} tries doctor() {"names" if is_found else "does not name"} it'
        if place.take():
            yield 'it is not put off'
        place.session.wait(PAUSE)
    faults.clear()
    if (taken := place.take()) != [bad] or place.is_found(bad) or place.charged(bad):
        yield f'{taken} were taken when it could be read'


# Where all of the errors are tried; where one that may pass and one that may not.
PLACES = (Claims, RunPending, FinishedChild, ParentsRequest, Receive, Stuck)
MORE_PLACES = (Deadline, CancelledParent, UndoneByHand, ChildUndone, Command, Fallback)
OTHERS = {'worker': by_a_worker, 'timekeeper': by_the_timekeeper}
OTHER_PLACES = (UnreadLease, UnreadParent)
NAMES = [kind.name for kind in (*PLACES, *MORE_PLACES, *OTHER_PLACES)] + list(OTHERS)


def checks_of(kind, session, faults):
    """Of a place: what is tried, each with its name."""
    place = kind(session)
    if kind is UnreadLease:
        return [(place.name, alone(place, faults))]
    if kind is UnreadParent:
        return [(f'{place.name}, {sqlstate}', endless(place, faults, sqlstate)) for sqlstate in (PASSING[0], LASTING[0])]
    errors = PASSING + LASTING if kind in PLACES else PASSING[:1] + LASTING[:1]
    return [(f'{place.name}, {sqlstate}', tries(place, faults, sqlstate)) for sqlstate in errors] + \
        [(f'{place.name}, passing', passes(place, faults))]


def every_fault(connect, names):
    """All of them, or those of these places; returns what is wrong."""
    connect.run(DEFINITIONS)
    faults, session, wrong = Faults(), Session(), []
    checks = [check for kind in (*PLACES, *MORE_PLACES, *OTHER_PLACES) if not names or kind.name in names
              for check in checks_of(kind, session, faults)]
    checks += [(name, check(session, faults)) for name, check in OTHERS.items() if not names or name in names]
    for what, check in checks:
        for text in check:
            wrong.append(f'{what}: {text}')
            print(f'not ok: {wrong[-1]}', flush=True)
    print(f'faults: {len(checks)} checks at {len(names or NAMES)} places, {len(wrong)} failures')
    return wrong
