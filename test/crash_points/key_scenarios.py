"""Scenarios of idempotency keys, accepted messages, sequences and versioned values: the effect commits with the
marker, once."""

import psycopg

from scenarios import Scenario

BEGIN = "SELECT outcome, lease, response FROM stacksaga.idempotency_begin('crash', %s, '{}', '1 second')"


class EffectScenario(Scenario):
    """Effects are rows of `done`."""
    effects = ('paid',)

    def wrong(self, client, tag):
        done = sorted(what for what, in client.rows('SELECT what FROM done WHERE tag = %s', tag))
        if done != sorted(self.effects):
            yield f'effects {done}, not {sorted(self.effects)}'
        yield from self.wrong_marker(client, tag)

    def wrong_marker(self, client, tag):
        """What is wrong with what the database remembers of it."""
        return ()

    @staticmethod
    def effect(connection, tag, what='paid'):
        connection.execute('INSERT INTO done VALUES (%s, %s)', (tag, what))


class KeyScenario(EffectScenario):
    def begin(self, client, tag):
        """Begins the key, and asks again while an attempt that was lost holds it."""
        begun = []

        def is_begun():
            try:
                begun[:] = client.rows(BEGIN, tag)
            except psycopg.Error as error:
                if error.sqlstate != 'SR409':
                    raise
            return bool(begun)
        client.until('the key can be begun', is_begun)
        return begun[0]

    def wrong_marker(self, client, tag):
        for _ in range(2):
            outcome, _, response = client.rows(BEGIN, tag)[0]
            if (outcome, response) != ('replay', {'receipt': tag}):
                yield f'the key answers {outcome} {response}'

    @staticmethod
    def finish(connection, tag, lease):
        connection.execute("SELECT stacksaga.idempotency_finish('crash', %s, %s, jsonb_build_object('receipt', %s::text))",
                           (tag, lease, tag))


class KeyInOneTransaction(KeyScenario):
    name = 'a key in one transaction'

    def work(self, client, tag):
        def all_of_it(connection):
            outcome, lease, _ = connection.execute(BEGIN, (tag,)).fetchone()
            if outcome != 'replay':
                self.effect(connection, tag)
                self.finish(connection, tag, lease)
        client.do(all_of_it)


class KeyInParts(KeyScenario):
    """Begun, taken to a checkpoint and finished in a transaction each; an attempt is abandoned at first."""
    name = 'a key in parts'

    def work(self, client, tag):
        self.begin(client, tag)
        outcome, lease, _ = self.begin(client, tag)
        while outcome != 'replay':
            try:
                client.run("SELECT stacksaga.idempotency_checkpoint('crash', %s, %s, 'half')", tag, lease)

                def finish(connection, lease=lease):
                    self.finish(connection, tag, lease)
                    # The same finish twice is one; so is its effect.
                    if not connection.execute('SELECT 1 FROM done WHERE tag = %s', (tag,)).fetchone():
                        self.effect(connection, tag)
                client.do(finish)
            except psycopg.Error as error:
                if error.sqlstate not in ('SG412', 'SG409'):
                    raise
            outcome, lease, _ = self.begin(client, tag)


class KeyReleased(KeyScenario):
    name = 'a key that is released'

    def work(self, client, tag):
        outcome, lease, _ = self.begin(client, tag)
        try:
            client.run("SELECT stacksaga.idempotency_release('crash', %s, %s)", tag, lease)
        except psycopg.Error as error:
            if error.sqlstate != 'SG412':  # it was released before the answer was lost
                raise
        KeyInOneTransaction.work(self, client, tag)


class KeyForgotten(KeyInOneTransaction):
    """An operator erases the answer: the key never begins again, and never answers with it."""
    name = 'a key that is forgotten'

    def work(self, client, tag):
        super().work(client, tag)
        for _ in range(2):
            client.run("SELECT stacksaga.idempotency_forget('crash', %s, 'ticket')", tag)

    def wrong_marker(self, client, tag):
        try:
            yield f'the key answers {client.rows(BEGIN, tag)[0]}'
        except psycopg.Error as error:
            if error.sqlstate != 'SG409':
                raise
        kept = client.rows('SELECT response, fingerprint FROM stacksaga.idempotency_key WHERE key = %s', tag)
        if kept != [(None, None)]:
            yield f'{kept} is kept'
        if len(client.rows("SELECT FROM stacksaga.operator_actions WHERE object = 'key \"' || %s || '\" of scope crash'", tag)) != 1:
            yield 'the action is not recorded once'


class KeyExpired(KeyInOneTransaction):
    """Keys are removed when their retention is over, completed ones with their markers, and can be begun anew."""
    name = 'a key that expires'
    effects = ('paid', 'paid')

    def work(self, client, tag):
        super().work(client, tag)
        try:
            client.rows("SELECT * FROM stacksaga.idempotency_begin('crash', %s, '{}', '100 days', '100 days')",
                        f'{tag} open')
        except psycopg.Error as error:
            if error.sqlstate != 'SR409':  # it was begun before the answer was lost
                raise

        def is_gone():
            client.do(lambda connection: (connection.execute("SET LOCAL stacksaga.clock_offset = '8 days'"),
                                          connection.execute('SELECT stacksaga.expire_dedupe(1000)')))
            return not client.rows('SELECT FROM stacksaga.idempotency_key WHERE key = %s', tag)
        client.until('the key is removed', is_gone)
        super().work(client, tag)

    def wrong_marker(self, client, tag):
        yield from super().wrong_marker(client, tag)
        if not client.rows('SELECT FROM stacksaga.idempotency_key WHERE key = %s', f'{tag} open'):
            yield 'a key in progress was removed'


class Accepted(EffectScenario):
    name = 'an accepted message'

    def work(self, client, tag):
        def accept(connection):
            if connection.execute("SELECT stacksaga.accept_message('crash', %s)", (tag,)).fetchone()[0]:
                self.effect(connection, tag)
        for _ in range(2):
            client.do(accept)


class Sequence(EffectScenario):
    name = 'a sequence'
    effects = ('1', '2', '3')

    def work(self, client, tag):
        for n in (1, 2, 2, 3):
            def accept(connection, n=n):
                if connection.execute('SELECT stacksaga.accept_sequence(%s, 1, %s)',
                                      (tag, n)).fetchone()[0] == 'accepted':
                    self.effect(connection, tag, str(n))
            client.do(accept)


class Value(EffectScenario):
    """A counter whose every version has an effect of its own."""
    name = 'a versioned value'
    effects = ('1', '2', '3')

    def work(self, client, tag):
        def step(connection):
            found = connection.execute("SELECT version FROM stacksaga.read_value('crash', %s)", (tag,)).fetchone()
            if found and found[0] == 3:
                return True
            version, = connection.execute("SELECT stacksaga.compare_and_set('crash', %s, %s, '{}')",
                                          (tag, found and found[0])).fetchone()
            self.effect(connection, tag, str(version))
            return False
        while not client.do(step):
            pass
