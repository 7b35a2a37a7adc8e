"""The clients that answer: services of queues, receivers of subscriptions."""

import time

from psycopg.types.json import Jsonb

from clients import one


class Service:
    """A service of the queue: claims steps, extends them, and answers in the transaction of the effect."""

    def __init__(self, session):
        self.session = session

    def turn(self):
        claimed = self.session.attempt('claim', {}, lambda connection: [
            {'saga_id': row[0], 'saga': row[1], 'step': row[2], 'direction': row[3], 'attempt': row[4],
             'input': row[5], 'key': row[6], 'lease': row[7]}
            for row in connection.execute(
                """SELECT saga_id, saga, step, direction, attempt, input, idempotency_key, lease
                     FROM stacksaga.claim_steps('payments', %s, 4, '3 seconds')""", (self.session.name,))])
        for call in claimed or ():
            self.answer(call)
        if not claimed:
            self.session.wait("CALL stacksaga.wait_for_steps('payments', '1 second')")

    def answer(self, call):
        random = self.session.random
        what = {name: call[name] for name in ('saga_id', 'step', 'direction', 'attempt', 'lease')}
        time.sleep(random.choice((0, 0, 0, 0.05)))
        choice = random.randrange(20)
        if choice == 0:
            return                  # it forgets to answer
        if choice == 1:
            self.session.attempt('extend', what, lambda connection: one(
                connection, "SELECT lease_until FROM stacksaga.extend_step(%s, %s, %s, '3 seconds')",
                (call['saga_id'], call['step'], call['lease']))[0])
        if choice == 2:
            self.fail(call, what, random.choice(('retryable', 'unknown')))
        elif choice == 3:
            self.release(call, what)
        elif call['direction'] == 'act' and call['input'].get('fails_at') == call['step'] and not self.repaired(call):
            self.fail(call, what, 'non_retryable')
        elif call['direction'] == 'act' and call['input']['to'] > 100:
            self.fail(call, what, 'non_retryable')
        elif call['saga_id'].int % 3 == 0:
            # Every attempt of one step the same way, or the idempotency key would protect nothing.
            self.effect_first(call, what)
        else:
            self.complete(call, what)

    def fail(self, call, what, error_class):
        self.session.attempt('fail', {**what, 'class': error_class}, lambda connection: one(
            connection, 'SELECT stacksaga.fail_step(%s, %s, %s, %s, %s)',
            (call['saga_id'], call['step'], call['lease'], 'chaos', error_class))[0])

    def release(self, call, what):
        """It has not begun, and gives the step back."""
        seconds = self.session.random.choice((0, 0, 0.3))
        self.session.attempt('release', what, lambda connection: one(
            connection, "SELECT stacksaga.release_step(%s, %s, %s, %s * interval '1 second', 'chaos')",
            (call['saga_id'], call['step'], call['lease'], seconds))[0])

    def repaired(self, call):
        """Whether somebody has put right what the saga failed at; not while the server is away."""
        return bool(self.session.read('SELECT FROM bank.repaired WHERE saga_id = %s', (call['saga_id'],)))

    def serve(self, connection, call):
        connection.execute('SELECT bank.serve(%s, %s, %s, %s, %s, %s)', (
            call['saga_id'], call['saga'], call['step'], call['direction'], call['attempt'], Jsonb(call['input'])))

    def complete(self, call, what):
        """The effect, and the answer that fences it, commit together."""
        def body(connection):
            self.serve(connection, call)
            return one(connection, 'SELECT stacksaga.complete_step(%s, %s, %s, %s)',
                       (call['saga_id'], call['step'], call['lease'], Jsonb({'done': call['direction']})))[0]
        return self.session.attempt('complete', what, body)

    def effect_first(self, call, what):
        """The effect under an idempotency key, fenced by an extension of the lease; the answer follows."""
        def body(connection):
            one(connection, "SELECT lease_until FROM stacksaga.extend_step(%s, %s, %s, '3 seconds')",
                (call['saga_id'], call['step'], call['lease']))
            outcome, lease = one(connection, """SELECT outcome, lease FROM stacksaga.idempotency_begin(
                                     'payments', %s, on_locked => 'wait')""", (call['key'],))
            if outcome != 'replay':
                self.serve(connection, call)
                connection.execute("SELECT stacksaga.idempotency_finish('payments', %s, %s)", (call['key'], lease))
            return {'outcome': outcome}
        if self.session.attempt('effect', what, body) is None:
            return
        self.session.attempt('complete', what, lambda connection: one(
            connection, 'SELECT stacksaga.complete_step(%s, %s, %s, %s)',
            (call['saga_id'], call['step'], call['lease'], Jsonb({'done': call['direction']})))[0])

    def drain(self):
        self.turn()
        return False


class Consumer:
    """Receives batches of a subscription under a lease of three seconds."""

    subscription = None

    def __init__(self, session):
        self.session = session

    def receive(self, size):
        """A batch; nothing after a pause."""
        batch = self.session.attempt('receive', {'subscription': self.subscription}, lambda connection: [
            {'batch': row[0], 'message_id': row[1], 'key': row[2], 'payload': row[3], 'attempt': row[4],
             'type': row[5]}
            for row in connection.execute(
                """SELECT batch_id, message_id, key, payload, attempt, type
                     FROM stacksaga.receive_messages(%s, %s, %s, '3 seconds')""",
                (self.subscription, self.session.name, size))])
        if not batch:
            self.session.wait("CALL stacksaga.wait_for_messages(%s, '1 second', %s)",
                              (self.subscription, self.session.random.choice((None, self.session.name))))
        return batch

    def turn(self):
        batch = self.receive(self.session.random.choice((1, 5, 20)))
        if not batch:
            return
        choice = self.session.random.randrange(30)
        if choice == 0:
            return                  # it forgets the batch
        if choice == 1:
            time.sleep(3.3)         # it is late, maybe too late
        elif choice == 3:
            self.release(batch)     # it has not begun
            return
        elif choice == 2:
            self.session.attempt('extend_batch', {'batch': batch[0]['batch']}, lambda connection: one(
                connection, "SELECT stacksaga.extend_batch(%s, '3 seconds')", (batch[0]['batch'],))[0])
        elif choice == 3:           # it cannot go on now, and says so
            self.session.attempt('release_batch', {'batch': batch[0]['batch']}, lambda connection: one(
                connection, "SELECT stacksaga.release_batch(%s, '0.2 seconds', 'not now')", (batch[0]['batch'],))[0])
            return
        self.handle(batch)

    def release(self, batch):
        seconds = self.session.random.choice((0, 0, 0.3))
        self.session.attempt('release_batch', {'batch': batch[0]['batch']}, lambda connection: one(
            connection, "SELECT stacksaga.release_batch(%s, %s * interval '1 second', 'chaos')",
            (batch[0]['batch'], seconds)) and None)

    def acknowledge(self, connection, batch):
        return one(connection, 'SELECT stacksaga.ack_messages(%s)', (batch[0]['batch'],))[0]

    def drain(self):
        # To be late on purpose would take most of the time: after an hour tens of thousands of messages are left.
        batch = self.receive(20)
        if batch:
            self.handle(batch)
        return False


class Receiver(Consumer):
    """Handles events: effects, reports of failures and the acknowledgement are one transaction."""

    subscription = 'pull'

    def healed(self, batch):
        """The poisoned messages of a batch that somebody has healed; none while the server is away."""
        nonces = [message['payload']['nonce'] for message in batch if message['payload']['poison']]
        return {row[0] for row in self.session.read(
            'SELECT nonce FROM bank.healed WHERE nonce = ANY (%s)', (nonces,))} if nonces else set()

    def handle(self, batch):
        blocked, failed, done = set(), [], []
        healed = self.healed(batch)
        for message in batch:
            payload, key = message['payload'], message['key']
            if key is not None and key in blocked:
                continue            # a failed message holds the later ones of its key
            poisoned = payload['poison'] and payload['nonce'] not in healed
            if poisoned or self.session.random.randrange(30) == 0:
                failed.append((message, 'non_retryable' if poisoned else 'retryable'))
                blocked.add(key)
            else:
                done.append(message)

        def body(connection):
            for message in done:
                payload = message['payload']
                if one(connection, "SELECT stacksaga.accept_message('pull', %s)", (str(message['message_id']),))[0]:
                    connection.execute(
                        """INSERT INTO bank.delivered (subscription, key, n, nonce, message_id, attempt, is_delayed)
                           VALUES ('pull', %s, %s, %s, %s, %s, %s)""",
                        (message['key'], payload['n'], payload['nonce'], message['message_id'],
                         message['attempt'], payload['delayed']))
            for message, error_class in failed:
                connection.execute('SELECT stacksaga.fail_message(%s, %s, %s, %s)',
                                   (message['batch'], message['message_id'], 'chaos', error_class))
            self.acknowledge(connection, batch)
        self.session.attempt('ack', {'subscription': 'pull', 'batch': batch[0]['batch'],
                                     'message_ids': [message['message_id'] for message in done]}, body)


class Shipper(Consumer):
    """Answers the messages of message steps, each in a transaction of its effect, and acknowledges the batch."""

    subscription = 'ships'

    def handle(self, batch):
        for message in batch:
            call = message['payload']
            what = {name: call[name] for name in ('saga_id', 'step', 'direction', 'attempt', 'lease')}

            def body(connection, call=call, message_id=str(message['message_id'])):
                # A message may come again; completing again under the same lease changes nothing and is no error.
                if one(connection, "SELECT stacksaga.accept_message('ships', %s)", (message_id,))[0]:
                    connection.execute('SELECT bank.serve(%s, %s, %s, %s, %s, %s)', (
                        call['saga_id'], call['saga'], call['step'], call['direction'], call['attempt'],
                        Jsonb(call['input'])))
                return one(connection, 'SELECT stacksaga.complete_step(%s, %s, %s, %s)',
                           (call['saga_id'], call['step'], int(call['lease']), Jsonb({'done': call['direction']})))[0]
            if call['direction'] == 'act' and call['input']['to'] > 100:
                self.session.attempt('fail', {**what, 'class': 'non_retryable'}, lambda connection, call=call: one(
                    connection, 'SELECT stacksaga.fail_step(%s, %s, %s, %s, %s)',
                    (call['saga_id'], call['step'], int(call['lease']), 'no such account', 'non_retryable'))[0])
            else:
                self.session.attempt('complete', what, body)
        self.session.attempt('ack', {'subscription': 'ships', 'batch': batch[0]['batch'],
                                     'message_ids': [message['message_id'] for message in batch]},
                             lambda connection: self.acknowledge(connection, batch))
