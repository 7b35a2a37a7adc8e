"""The client that does what operators do: it stops, repairs and undoes, and goes on with what others have stopped."""

import time

from psycopg.types.json import Jsonb

from clients import one


class Operator:
    """Cancels, suspends, resumes, repairs and compensates sagas, sends signals, pauses, and heals, redrives or
    discards what is dead.
    """

    # What may be paused: kind and name.
    PAUSED = (('queue', 'payments'), ('definition', 'transfer'), ('definition', 'order'), ('definition', 'patient'),
              ('subscription', 'pull'), ('subscription', 'ledger'), ('subscription', 'ships'))

    def __init__(self, session):
        self.session = session
        self.turns = 0

    def turn(self, draining=False):
        self.turns += 1
        if self.turns % 2 == 0:
            self.signal()
        if self.turns % 4 == 0:
            self.redrive()
        if self.turns % 10 == 0:
            self.resume()
        if self.turns % 6 == 0 and not draining:
            self.interfere()
        if self.turns % 25 == 0:
            self.resume_paused()
        if self.turns % 25 == 8 and not draining:
            self.pause()
        time.sleep(0.1)

    def signal(self):
        waiting = self.session.read("""SELECT saga_id FROM stacksaga.sagas WHERE saga = 'family'
                                AND current_step = 'go' AND status = 'running' LIMIT 30""")
        for saga_id, in waiting:
            message_id = f'go-{saga_id}'

            def body(connection, saga_id=saga_id, message_id=message_id):
                accepted = one(connection, "SELECT stacksaga.signal_saga(%s, 'go', %s, %s)",
                               (saga_id, Jsonb({'by': self.session.name}), message_id))[0]
                if accepted:
                    connection.execute('INSERT INTO bank.signalled VALUES (%s, %s)', (saga_id, message_id))
                return {'accepted': accepted}
            self.session.attempt('signal', {'saga_id': saga_id, 'message_id': message_id}, body)

    def redrive(self):
        dead = self.session.read("""SELECT subscription, message_id, payload ->> 'nonce' FROM stacksaga.dead_messages
                             LIMIT 20""")
        for subscription, message_id, nonce in dead:
            discarded = subscription == 'pull' and self.session.random.randrange(5) == 0

            def body(connection, subscription=subscription, message_id=message_id, nonce=nonce,
                     discarded=discarded):
                if discarded:
                    connection.execute('SELECT stacksaga.discard_message(%s, %s, %s)',
                                       (subscription, message_id, 'chaos'))
                    return
                connection.execute('INSERT INTO bank.healed VALUES (%s) ON CONFLICT DO NOTHING', (nonce,))
                connection.execute('SELECT stacksaga.redrive_message(%s, %s)', (subscription, message_id))
            self.session.attempt('discard' if discarded else 'redrive',
                                 {'subscription': subscription, 'message_id': message_id}, body)

    def interfere(self):
        rows = self.session.read("""SELECT saga_id FROM stacksaga.sagas WHERE status IN ('running', 'pending')
                             ORDER BY created_at DESC LIMIT 30""")
        if not rows:
            return
        saga_id = self.session.random.choice(rows)[0]
        verb = self.session.random.choice(('cancel', 'suspend'))
        self.session.attempt(verb, {'saga_id': saga_id}, lambda connection: one(
            connection, f"SELECT stacksaga.{verb}_saga(%s, 'chaos')", (saga_id,))[0])

    def resume(self):
        for saga_id, in self.session.read("SELECT saga_id FROM stacksaga.sagas WHERE status = 'suspended' LIMIT 20"):
            self.act('resume', saga_id)
        for saga_id, saga, direction in self.session.read(
                'SELECT saga_id, saga, direction FROM stacksaga.parked_sagas LIMIT 20'):
            if saga != 'patient' or direction == 'compensate':
                self.act('retry', saga_id)
            elif self.session.random.randrange(3) == 0:
                self.act('compensate', saga_id)
            else:
                self.repair(saga_id)

    def act(self, verb, saga_id):
        self.session.attempt(verb, {'saga_id': saga_id}, lambda connection: one(
            connection, f"SELECT stacksaga.{verb}_saga(%s, 'chaos')", (saga_id,))[0])

    def repair(self, saga_id):
        """What the saga failed at is put right, and it goes on."""
        def body(connection):
            connection.execute('INSERT INTO bank.repaired VALUES (%s) ON CONFLICT DO NOTHING', (saga_id,))
            return one(connection, "SELECT stacksaga.retry_saga(%s, 'chaos')", (saga_id,))[0]
        self.session.attempt('repair', {'saga_id': saga_id}, body)

    def pause(self):
        """Until it is resumed, or for a while."""
        kind, name = self.session.random.choice(self.PAUSED)
        seconds = self.session.random.choice((None, 0.5, 2))
        self.session.attempt('pause', {'kind': kind, 'name': name, 'seconds': seconds}, lambda connection: one(
            connection, f"""SELECT stacksaga.pause_{kind}(%s, 'chaos',
                                stacksaga.clock_now() + %s * interval '1 second')""", (name, seconds)) and None)

    def resume_paused(self):
        """All that is paused; a pause that ends by itself is resumed before, if it still lasts."""
        for kind, name in self.session.read("""
                SELECT 'queue', queue FROM stacksaga.queues WHERE paused
                UNION ALL SELECT 'subscription', subscription FROM stacksaga.subscriptions WHERE paused
                UNION SELECT 'definition', saga FROM stacksaga.definitions WHERE paused"""):
            self.session.attempt('unpause', {'kind': kind, 'name': name}, lambda connection, kind=kind, name=name: one(
                connection, f"SELECT stacksaga.resume_{kind}(%s, 'chaos')", (name,)) and None)

    def drain(self):
        self.turn(draining=True)
        return False
