"""What a scenario is, and those of sagas: each kind of step, with and without failure.

A scenario does the work of one kind under a tag of its own, to its end, whatever happens to the server, and then
says what is wrong. To add one, write a subclass of Scenario that has a name, here or beside.
"""

import psycopg

LEASE_LOST = {'SG404', 'SG409', 'SG412'}


class Scenario:
    """One kind of work."""
    name = ''
    # Where the server crashes before the point that is tried, which only a recovery passes.
    before = ()

    def work(self, client, tag):
        """Does the work to its end. What it calls may be repeated."""
        raise NotImplementedError

    def wrong(self, client, tag):
        """Yields what is wrong afterwards, in words."""
        raise NotImplementedError


class SagaScenario(Scenario):
    """A saga that runs to its end. Expected are its effects and those of its children: each of them once."""
    saga = ''
    status = 'completed'
    expected = ()
    # It may also end before it has done anything.
    may_do_nothing = False
    ends = ('completed', 'failed', 'parked')

    def start(self, client, tag):
        return client.value('SELECT saga_id FROM stacksaga.start_saga(%s, jsonb_build_object(%s::text, %s::text), %s)',
                            self.saga, 'tag', tag, tag)

    def help(self, client, tag, saga_id):
        """What others do for it, called again and again until it has ended."""

    def work(self, client, tag):
        saga_id = self.start(client, tag)

        def has_ended():
            self.help(client, tag, saga_id)
            return client.value('SELECT status FROM stacksaga.sagas WHERE saga_id = %s', saga_id) in self.ends
        client.until(f'saga {saga_id} ends', has_ended)

    def wrong(self, client, tag):
        saga_id = client.value('SELECT stacksaga.saga_id_of(%s, %s)', self.saga, tag)
        status = client.value('SELECT status FROM stacksaga.sagas WHERE saga_id = %s', saga_id)
        if status != self.status:
            yield f'the saga is {status}, not {self.status}'
        tree = "(SELECT saga_id, saga FROM stacksaga.sagas WHERE input ->> 'tag' = %s)"
        effects = sorted(client.rows(f'SELECT saga, step, direction FROM effect JOIN {tree} AS s USING (saga_id)', tag))
        expected = sorted(self.expected) if effects or not self.may_do_nothing else []
        if effects != expected:
            yield f'effects {effects}, not {expected}'
        # Markers of steps that only wait have no effect of their own.
        markers = sorted(client.rows(
            f"""SELECT saga, step, direction FROM stacksaga.saga_history JOIN {tree} AS s USING (saga_id)
                 WHERE status = 'completed' AND step NOT IN ('paid', 'wait', 'kid')""", tag))
        expected = sorted((saga, step, 'act' if direction == 'fallback' else direction)
                          for saga, step, direction in expected)
        if markers != expected:
            yield f'markers {markers}, not {expected}'
        if client.value(f'SELECT EXISTS (SELECT FROM stacksaga.work JOIN {tree} AS s USING (saga_id))', tag):
            yield 'work is left'


def acts(saga, *steps):
    return [(saga, step, 'act') for step in steps]


def undone(saga, *steps):
    return acts(saga, *steps) + [(saga, step, 'compensate') for step in steps]


class Steps(SagaScenario):
    name = saga = 'steps'
    expected = acts('steps', 'a', 'b', 'c')


class StepsAfterCrash(Steps):
    name = 'steps after a crash'
    before = ('handler: before it is entered',)


class Retry(SagaScenario):
    name = saga = 'retry'
    expected = acts('retry', 'a', 'flaky')


class Undo(SagaScenario):
    name = saga = 'undo'
    status = 'failed'
    expected = undone('undo', 'a', 'b')


class Fallback(SagaScenario):
    name = saga = 'fallback'
    expected = [*acts('fallback', 'a'), ('fallback', 'broken', 'fallback')]


class Timer(SagaScenario):
    name = saga = 'timer'
    expected = acts('timer', 'a')


class Deadline(SagaScenario):
    """A service never claims its second step. A server that recovers for so long passes the first one, too."""
    name = saga = 'deadline'
    status = 'failed'
    may_do_nothing = True
    expected = undone('deadline', 'a')


class Child(SagaScenario):
    name = saga = 'child'
    expected = acts('child', 'a') + acts('kid', 'a', 'b')


class ChildUndo(SagaScenario):
    name = saga = 'child_undo'
    status = 'failed'
    expected = undone('kid', 'a', 'b')


class Signal(SagaScenario):
    name = saga = 'signal'
    expected = acts('signal', 'a')

    def start(self, client, tag):
        saga_id = super().start(client, tag)
        client.value("SELECT stacksaga.signal_saga(%s, 'paid', '{}', %s)", saga_id, tag)
        return saga_id


class Schedule(Scenario):
    """A run each second, none of which is a minute late: so none is lost, and none starts two sagas."""
    name = 'schedule'

    def work(self, client, tag):
        client.value("SELECT stacksaga.create_schedule(%s, 'steps', '* * * * * *', jsonb_build_object('tag', %s::text))",
                     f'every second {tag}', tag)
        client.until('two runs have started', lambda: client.value(
            "SELECT count(*) >= 2 FROM stacksaga.sagas WHERE input ->> 'tag' = %s", tag))
        client.value('SELECT stacksaga.drop_schedule(schedule) FROM stacksaga.schedules WHERE schedule = %s',
                     f'every second {tag}')
        client.until('its sagas end', lambda: client.value(
            "SELECT bool_and(status = 'completed') FROM stacksaga.sagas WHERE input ->> 'tag' = %s", tag))

    def wrong(self, client, tag):
        runs = client.rows("""SELECT input ->> 'scheduled_at' FROM stacksaga.sagas
                               WHERE input ->> 'tag' = %s ORDER BY 1""", tag)
        seconds = client.value("""SELECT 1 + extract(epoch FROM max(run) - min(run))::integer
                                    FROM unnest(%s::timestamptz[]) AS run""", [run for run, in runs])
        if len(set(runs)) != len(runs) or len(runs) != seconds:
            yield f'not one run for each second: {runs}'
        effects = client.rows("""SELECT s.saga_id, step, direction FROM effect JOIN stacksaga.sagas AS s USING (saga_id)
                                  WHERE s.input ->> 'tag' = %s""", tag)
        if len(effects) != 3 * len(runs) or len(set(effects)) != len(effects):
            yield f'{len(effects)} effects of {len(runs)} runs, not three of each'


def answer(client, statements):
    """Runs an effect and the answers to it in one transaction. It is not repeated when the server is lost: what did
    not commit is claimed again. A lease that was lost meanwhile undoes it. Whether it committed, as far as is known."""
    begun = []

    def run(connection):
        if begun:
            return False
        begun.append(True)
        for sql, parameters in statements:
            connection.execute(sql, parameters)
        return True
    try:
        return client.do(run)
    except psycopg.Error as error:
        if error.sqlstate not in LEASE_LOST:
            raise
        return False


def effect(saga_id, step, direction):
    return 'INSERT INTO effect VALUES (%s, %s, %s)', (saga_id, step, direction)


class Service(SagaScenario):
    """A service that fails its first attempt, then extends its lease and completes."""
    name = saga = 'service'
    expected = acts('service', 'charge', 'a')

    def help(self, client, tag, saga_id):
        for claimed, step, direction, attempt, lease in client.rows(
                "SELECT saga_id, step, direction, attempt, lease"
                " FROM stacksaga.claim_steps(%s, 'till', lease => '1 second')", self.saga):
            under_lease = (claimed, step, lease)
            if attempt == 1 and direction == 'act':
                answer(client, [("SELECT stacksaga.fail_step(%s, %s, %s, 'closed', 'retryable', retry_after => '0')", under_lease)])
            elif answer(client, [("SELECT stacksaga.extend_step(%s, %s, %s, '1 second')", under_lease)]):
                answer(client, [effect(claimed, step, direction),
                                ("SELECT stacksaga.complete_step(%s, %s, %s, '{}')", under_lease)])


class ServiceRelease(SagaScenario):
    """A service that gives its first attempt back, in time or after its lease, and then completes."""
    name = saga = 'service_release'
    expected = acts('service_release', 'charge', 'a')

    def help(self, client, tag, saga_id):
        for claimed, step, direction, attempt, lease in client.rows(
                "SELECT saga_id, step, direction, attempt, lease"
                " FROM stacksaga.claim_steps(%s, 'till', lease => '1 second')", self.saga):
            under_lease = (claimed, step, lease)
            if attempt == 1:
                answer(client, [("SELECT stacksaga.release_step(%s, %s, %s, reason => 'deployment')", under_lease)])
            else:
                answer(client, [effect(claimed, step, direction),
                                ("SELECT stacksaga.complete_step(%s, %s, %s, '{}')", under_lease)])


class ParkUndone(SagaScenario):
    """A saga that stops at a failure, and that an operator has undone."""
    name = saga = 'park_undone'
    status = 'failed'
    expected = undone('park_undone', 'a')
    ends = ('completed', 'failed')
    call = "SELECT stacksaga.compensate_saga(%s, 'nobody wants it')"

    def help(self, client, tag, saga_id):
        if client.value('SELECT status FROM stacksaga.sagas WHERE saga_id = %s', saga_id) == 'parked':
            answer(client, [(self.call, (saga_id,))])


class ParkRetried(ParkUndone):
    """A service fails for good, and does it when an operator has it tried again."""
    name = saga = 'park_retried'
    status = 'completed'
    expected = acts('park_retried', 'charge', 'a')
    call = "SELECT stacksaga.retry_saga(%s, 'it is repaired')"

    def help(self, client, tag, saga_id):
        super().help(client, tag, saga_id)
        for claimed, step, direction, attempt, lease in client.rows(
                "SELECT saga_id, step, direction, attempt, lease"
                " FROM stacksaga.claim_steps(%s, 'till', lease => '1 second')", self.saga):
            under_lease = (claimed, step, lease)
            if attempt == 1:
                answer(client, [("SELECT stacksaga.fail_step(%s, %s, %s, 'broken', 'non_retryable')", under_lease)])
            else:
                answer(client, [effect(claimed, step, direction),
                                ("SELECT stacksaga.complete_step(%s, %s, %s, '{}')", under_lease)])


class ServiceUndo(Service):
    name = saga = 'service_undo'
    status = 'failed'
    expected = undone('service_undo', 'charge')


class Told(ServiceUndo):
    """Each change of its status is published once, in their order: with the change, or not at all."""
    name = saga = 'told'
    expected = undone('told', 'charge')
    events = ['saga.running', 'saga.compensating', 'saga.failed']

    def types(self, client, tag):
        return [type for type, in client.rows(
            'SELECT type FROM told WHERE saga_id = stacksaga.saga_id_of(%s, %s) ORDER BY seq', self.saga, tag)]

    def work(self, client, tag):
        super().work(client, tag)
        client.until('its end is told', lambda: self.events[-1] in self.types(client, tag))

    def wrong(self, client, tag):
        yield from super().wrong(client, tag)
        if (types := self.types(client, tag)) != self.events:
            yield f'its events are {types}, not {self.events}'


class Command(SagaScenario):
    """A step whose command is a message: effect, answer and acknowledgement commit together."""
    name = saga = 'command'
    expected = acts('command', 'charge', 'a')

    def help(self, client, tag, saga_id):
        for batch, payload in client.rows(
                "SELECT batch_id, payload FROM stacksaga.receive_messages('command', 'till', 1, '1 second')"):
            claimed, step = payload['saga_id'], payload['step']
            answer(client, [effect(claimed, step, payload['direction']),
                            ("SELECT stacksaga.complete_step(%s, %s, %s, '{}')", (claimed, step, int(payload['lease']))),
                            ('SELECT stacksaga.ack_messages(%s)', (batch,))])


class Redaction(SagaScenario):
    """A finished saga is redacted: all of it, once, or nothing."""
    name = 'redaction'
    saga = 'undo'

    def work(self, client, tag):
        super().work(client, tag)
        saga_id = client.value('SELECT stacksaga.saga_id_of(%s, %s)', self.saga, tag)
        client.run("SELECT stacksaga.redact_saga(%s, 'a test')", saga_id)

    def wrong(self, client, tag):
        saga_id = client.value('SELECT stacksaga.saga_id_of(%s, %s)', self.saga, tag)
        for what, query in (
                ('its input is left', "SELECT input ? 'tag' FROM stacksaga.saga WHERE saga_id = %s"),
                ('an output is left', "SELECT bool_or(output ? 'did') FROM stacksaga.effect WHERE saga_id = %s"),
                ('an error is left', "SELECT bool_or(error <> 'redacted') FROM stacksaga.failure WHERE saga_id = %s"),
                ('it was not redacted once', "SELECT count(*) <> 1 FROM stacksaga.saga_action"
                                             " WHERE saga_id = %s AND action = 'redact'")):
            if client.value(query, saga_id):
                yield what


class Retention(SagaScenario):
    """Sagas of all ends are removed with all that belongs to them, and no other saga is."""
    name = 'retention'
    saga = 'undo'

    def work(self, client, tag):
        super().work(client, tag)
        waiting = client.value("SELECT saga_id FROM stacksaga.start_saga('deadline', '{}', %s, deadline => '1 hour')", tag)
        client.until('the other saga waits for a service', lambda: client.value(
            "SELECT EXISTS (SELECT FROM stacksaga.work WHERE saga_id = %s AND queue = 'nobody')", waiting))

        def is_removed():
            client.do(lambda connection: (
                connection.execute("SET LOCAL stacksaga.clock_offset = '31 days'"),
                connection.execute('SELECT stacksaga.expire_sagas(1000)')))
            return not client.rows('SELECT FROM stacksaga.sagas WHERE saga_id = stacksaga.saga_id_of(%s, %s)',
                                   self.saga, tag)
        client.until('the saga is removed', is_removed)

    def wrong(self, client, tag):
        for table in ('effect', 'failure', 'work', 'saga_signal', 'saga_action'):
            left = client.value(f'SELECT count(*) FROM stacksaga.{table} AS t WHERE NOT EXISTS ('
                                ' SELECT FROM stacksaga.saga WHERE saga_id = t.saga_id)')
            if left:
                yield f'{left} rows of {table} belong to no saga'
        waiting = client.value("SELECT stacksaga.saga_id_of('deadline', %s)", tag)
        if client.value('SELECT status FROM stacksaga.sagas WHERE saga_id = %s', waiting) != 'running':
            yield 'a saga that runs was removed'
