"""Scenarios of the outbox: messages with and without keys, delayed, failing, in batches, and fetched by services."""

from scenarios import Scenario, answer


class MessageScenario(Scenario):
    """Messages that are published and handled, each once, those of a key in their order."""
    topic = 'keyed'
    keys = ('x', 'y')
    each = 4
    fails = {}
    delay = None

    def publish(self, client, tag):
        """One transaction each, with a row of the publisher that says so: it knows what it has published."""
        for n in range(1, self.each + 1):
            for key in self.keys:
                client.do(lambda connection, n=n, key=key: self.publish_one(connection, tag, key, n))

    def publish_one(self, connection, tag, key, n):
        place = n if key is None else f'{key}{n}'
        if connection.execute('SELECT 1 FROM published WHERE tag = %s AND n = %s', (f'{tag} {key}', n)).fetchone():
            return
        connection.execute(
            "INSERT INTO published SELECT %s, %s, stacksaga.publish(%s, jsonb_build_object('tag', %s::text, 'n', %s::int,"
            " 'fails', %s::text), %s, deliver_at => clock_timestamp() + %s::interval)",
            (f'{tag} {key}', n, self.topic, tag, n, self.fails.get(place), key, self.delay))

    def help(self, client, tag):
        """What others do, called again and again until everything is handled."""

    def work(self, client, tag):
        self.publish(client, tag)

        def are_handled():
            self.help(client, tag)
            return client.value('SELECT count(*) FROM handled WHERE tag = %s', tag) >= self.each * len(self.keys)
        client.until('all messages are handled', are_handled)
        client.until('nothing is left of them', lambda: not client.value(
            'SELECT EXISTS (SELECT FROM stacksaga.message_retry) OR lag_messages > 0 FROM stacksaga.subscriptions'
            ' WHERE subscription = %s', self.topic))

    def wrong(self, client, tag):
        for key in self.keys:
            handled = [n for n, in client.rows(
                'SELECT n FROM handled WHERE tag = %s AND key IS NOT DISTINCT FROM %s ORDER BY seq', tag, key)]
            if key is None:
                handled.sort()
            if handled != list(range(1, self.each + 1)):
                yield f'messages of key {key} were handled as {handled}'
        dead = client.value('SELECT count(*) FROM stacksaga.dead_message WHERE topic = %s AND discarded_at IS NULL',
                            self.topic)
        if dead:
            yield f'{dead} messages are dead'


class Keyed(MessageScenario):
    name = 'keyed messages'


class KeyedAfterCrash(Keyed):
    name = 'keyed messages after a crash'
    before = ('delivery: after the handler',)


class Unkeyed(MessageScenario):
    name = 'messages without keys'
    keys = (None,)
    each = 6


class Delayed(MessageScenario):
    name = 'delayed messages'
    delay = '200 milliseconds'
    keys = ('x',)
    each = 2


class FailingOnce(MessageScenario):
    name = 'messages that fail once'
    fails = {'x2': 'once', 'y1': 'once'}


class Dead(MessageScenario):
    """A message that is dead holds the later ones of its key until it is redriven."""
    name = 'dead messages'
    fails = {'x2': 'dead'}

    def help(self, client, tag):
        dead = client.rows("SELECT message_id FROM stacksaga.dead_messages WHERE subscription = %s"
                           " AND payload ->> 'tag' = %s", self.topic, tag)
        for message_id, in dead:
            client.run('INSERT INTO repaired VALUES (%s)', tag)
            answer(client, [('SELECT stacksaga.redrive_message(%s, %s)', (self.topic, message_id))])


class Batch(MessageScenario):
    """Messages that are published in one transaction, and so handled in one batch."""
    name = 'batches'
    topic = 'batch'

    def publish(self, client, tag):
        def publish_all(connection):
            for n in range(1, self.each + 1):
                for key in self.keys:
                    self.publish_one(connection, tag, key, n)
        client.do(publish_all)


class BatchAfterCrash(Batch):
    """A crash may lose the tick as well, whose commit nobody waits for, and what it named is not charged then. A worker
    that follows a crash waits for its ticks. So the first crash is that of a message before, and the next one, after
    that message was delivered again, is the batch's: it is charged."""
    name = 'batches after a crash'
    before = ('delivery: after the handler', 'delivery: after the handler#2')

    def publish(self, client, tag):
        client.do(lambda connection: self.publish_one(connection, f'{tag} first', 'x', 1))
        client.until('the first message is handled', lambda: client.rows(
            'SELECT FROM handled WHERE tag = %s', f'{tag} first'))
        super().publish(client, tag)


class BatchFailing(Batch):
    name = 'batches with a failure'
    fails = {'x2': 'once'}


class Fetched(MessageScenario):
    """Messages that a service receives, of which it fails one at first. Its effects commit with the acknowledgement."""
    name = 'fetched messages'
    topic = 'fetched'

    def help(self, client, tag):
        rows = client.rows("SELECT batch_id, message_id, key, payload, attempt"
                           " FROM stacksaga.receive_messages('fetched', 'till', 3, '1 second')")
        if not rows:
            return
        batch = rows[0][0]
        statements = [("SELECT stacksaga.extend_batch(%s, '1 second')", (batch,))]
        failed = set()
        for _, message_id, key, payload, attempt in rows:
            if key in failed:
                continue
            if payload['n'] == 2 and attempt == 1:
                failed.add(key)
                statements.append(("SELECT stacksaga.fail_message(%s, %s, 'closed', retry_after => '0')",
                                   (batch, message_id)))
            else:
                statements.append(('INSERT INTO handled (tag, key, n) VALUES (%s, %s, %s)',
                                   (payload['tag'], key, payload['n'])))
        answer(client, [*statements, ('SELECT stacksaga.ack_messages(%s)', (batch,))])


class GivenBack(Fetched):
    """A service that gives back every second batch, among them those with a retry."""
    name = 'messages given back'
    turn = 0

    def help(self, client, tag):
        self.turn += 1
        if self.turn % 2 == 0:
            super().help(client, tag)
            return
        for batch, in client.rows("SELECT DISTINCT batch_id FROM stacksaga.receive_messages('fetched', 'till', 3, '1 second')"):
            answer(client, [("SELECT stacksaga.release_batch(%s, '10 milliseconds', 'closed')", (batch,))])


class Discarded(MessageScenario):
    """A dead message that is discarded lets the later ones of its key go on."""
    name = 'discarded messages'
    fails = {'x2': 'dead'}
    keys = ('x',)

    def help(self, client, tag):
        for message_id, in client.rows("SELECT message_id FROM stacksaga.dead_messages WHERE subscription = %s"
                                       " AND payload ->> 'tag' = %s", self.topic, tag):
            # It stands for what was not handled.
            answer(client, [("INSERT INTO handled (tag, key, n) VALUES (%s, 'x', 2)", (tag,)),
                            ("SELECT stacksaga.discard_message(%s, %s, 'not wanted')", (self.topic, message_id))])


class Log(Keyed):
    """Generations are truncated when all subscriptions have read them; what is published then is handled, too."""
    name = 'the log'

    def work(self, client, tag):
        super().work(client, tag)

        def is_empty():
            # Services that read nothing of this hold the log as well: they look.
            for subscription in ('fetched', 'command'):
                client.rows("SELECT * FROM stacksaga.receive_messages(%s, 'till')", subscription)
            client.run('SELECT stacksaga.maintain_outbox(true)')
            return client.value("SELECT count(*) FROM stacksaga.outbox_message WHERE payload ->> 'tag' = %s", tag) == 0
        client.until('the log is empty', is_empty)
        client.run('DELETE FROM handled WHERE tag = %s', tag)
        client.run('DELETE FROM published WHERE tag LIKE %s', f'{tag} %')
        super().work(client, tag)
