"""The checker's own test: a recorded run that keeps every promise, and one planted violation after another.

Each plant is a function that breaks a copy of the run in one way, and names the promise that must report
it. A promise without a plant fails the test, and so does one that looked at nothing.
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import check
from promises import PROMISES, History
from recorder import Recorder, doubt_lost, read_history

HERE = pathlib.Path(__file__).parent
PLANTS = []


def plant(part_of_promise):
    """Registers a plant: f(calls, tables) breaks the promise whose sentence has these words."""
    def add(function):
        sentence, = (sentence for sentence in PROMISES if part_of_promise in sentence)
        PLANTS.append((sentence, function))
        return function
    return add


def effect(seq, saga_id, saga, step, direction, account, amount):
    return {'seq': seq, 'saga_id': saga_id, 'saga': saga, 'step': step, 'direction': direction, 'attempt': 1,
            'account': account, 'amount': amount}


def message(subscription, seq, key, n, nonce, message_id):
    return {'seq': seq, 'subscription': subscription, 'key': key, 'n': n, 'nonce': nonce,
            'message_id': message_id, 'is_delayed': False}


def sound_tables():
    """The tables after a completed transfer, a failed order and three messages of one key."""
    sent = [{'topic': 'event', 'key': 'k1', 'n': n, 'nonce': f'm{n}', 'message_id': f'id{n}', 'is_delayed': False}
            for n in (1, 2, 3)]
    sent.append({'topic': 'derived', 'key': 'k1', 'n': 3, 'nonce': 'm3', 'message_id': 'id4', 'is_delayed': False})
    delivered = [message(subscription, seq, 'k1', seq, f'm{seq}', f'id{seq}')
                 for subscription in ('ledger', 'batch', 'loose', 'pull') for seq in (1, 2, 3)]
    delivered.append(message('derived', 4, 'k1', 3, 'm3', 'id4'))
    return {
        'account': [{'id': 1, 'balance': 85, 'opening': 100}, {'id': 2, 'balance': 115, 'opening': 100}],
        'ledger': [
            effect(1, 's1', 'transfer', 'debit', 'act', 1, -10), effect(2, 's1', 'transfer', 'credit', 'act', 2, 10),
            effect(3, 's1', 'transfer', 'confirm', 'act', 1, 0), effect(4, 's1', 'transfer', 'close', 'act', 1, 0),
            effect(5, 's2', 'order', 'hold', 'act', 1, -20), effect(6, 's2', 'order', 'charge', 'act', 2, 20),
            effect(7, 's2', 'order', 'charge', 'compensate', 2, -20),
            effect(8, 's2', 'order', 'hold', 'compensate', 1, 20)],
        'direct': [{'nonce': 'd1', 'account': 1, 'amount': -5}, {'nonce': 'd1', 'account': 2, 'amount': 5}],
        'saga': [{'saga_id': saga_id, 'saga': saga, 'key': key, 'status': status, 'input': {'amount': 1},
                  'parent_id': None, 'last_error': None}
                 for saga_id, saga, key, status in (('s1', 'transfer', 'a', 'completed'),
                                                    ('s2', 'order', 'b', 'failed'))],
        'life': [{'seq': seq, 'saga_id': 's1', 'status': status, 'message_id': f'l{seq}'}
                 for seq, status in ((1, 'running'), (2, 'suspended'), (3, 'running'), (4, 'completed'))],
        'parked': [], 'sent': sent, 'delivered': delivered,
        'paid': [{'key': 'p', 'nonce': 'n1'}],
        'versioned': [{'key': 'v', 'version': 1, 'nonce': 'n2'}],
        'sequenced': [{'producer': 'producer', 'epoch': 1, 'sequence': sequence} for sequence in (1, 2)],
        'signalled': [{'saga_id': 's1', 'message_id': 'go'}],
        'subscription': [{'subscription': 'pull', 'lag_messages': 0, 'blocked_keys': 0, 'dead_messages': 0}],
    }


def sound_calls():
    """(op, args, outcome, value) of the calls that led there, one after the other."""
    step = {'saga': 'order', 'saga_id': 's2', 'step': 'charge', 'direction': 'act', 'attempt': 1, 'lease': 7}
    batch = [{'batch': 1, 'message_id': f'id{n}', 'key': 'k1', 'payload': {}, 'attempt': 1} for n in (1, 2, 3)]
    return [
        ('start', {'saga': 'transfer', 'keys': ['a'], 'input': {'amount': 1}}, 'ok',
         {'saga_id': 's1', 'created': True}),
        ('start', {'saga': 'transfer', 'keys': ['a'], 'input': {'amount': 1}}, 'ok',
         {'saga_id': 's1', 'created': False}),
        ('start', {'saga': 'order', 'keys': ['b'], 'input': {'amount': 1}}, 'unknown', None),
        ('start', {'saga': 'order', 'keys': ['c'], 'input': {'amount': 1}}, 'error', None),
        ('start', {'saga': 'order', 'keys': ['lost'], 'input': {'amount': 1}}, 'unknown', None),
        ('move', {'nonce': 'd1'}, 'ok', None), ('move', {'nonce': 'd2'}, 'error', None),
        ('ranges', {}, 'ok', {'epoch': 1, 'epoch_after': 1, 'ranges': [{'node': 'a', 'start': 0, 'end': 9}]}),
        ('ranges', {}, 'ok', {'epoch': 2, 'epoch_after': 2, 'ranges': [{'node': 'a', 'start': 0, 'end': 4},
                                                                {'node': 'b', 'start': 5, 'end': 9}]}),
        ('pause', {'kind': 'definition', 'name': 'order', 'seconds': None}, 'ok', None),
        ('unpause', {'kind': 'definition', 'name': 'order'}, 'ok', None),
        ('pause', {'kind': 'queue', 'name': 'payments', 'seconds': 2}, 'ok', None),
        ('claim', {}, 'ok', [step]), ('complete', step, 'ok', 'running'),
        ('signal', {'saga_id': 's1', 'message_id': 'go'}, 'ok', {'accepted': True}),
        ('pay', {'key': 'p', 'request': {'variant': 'usual'}, 'nonce': 'n1'}, 'ok', {'nonce': 'n1', 'replay': False}),
        ('pay', {'key': 'p', 'request': {'variant': 'usual'}, 'nonce': 'n5'}, 'ok', {'nonce': 'n1', 'replay': True}),
        ('pay', {'key': 'p', 'request': {'variant': 'other'}, 'nonce': 'n6'}, 'error', None),
        ('set', {'key': 'v', 'nonce': 'n2'}, 'ok', {'version': 1}), ('set', {'key': 'v', 'nonce': 'n3'}, 'error', None),
        ('sequence', {'epoch': 1, 'sequence': 1}, 'ok', {'accepted': True}),
        ('sequence', {'epoch': 1, 'sequence': 2}, 'unknown', None),
        ('sequence', {'epoch': 0, 'sequence': 3}, 'error', None),
        ('publish', {'key': 'k1', 'nonces': ['m1', 'm2']}, 'ok', {}),
        ('publish', {'key': 'k1', 'nonces': ['m3']}, 'unknown', None),
        ('publish', {'key': 'k1', 'nonces': ['m9']}, 'error', None),
        ('receive', {'subscription': 'pull'}, 'ok', batch[:2]),
        ('ack', {'subscription': 'pull', 'batch': 1, 'message_ids': ['id1', 'id2']}, 'ok', None),
        ('receive', {'subscription': 'pull'}, 'ok', batch[2:]),
        ('ack', {'subscription': 'pull', 'batch': 1, 'message_ids': ['id3']}, 'unknown', None),
        ('receive', {'subscription': 'pull'}, 'ok', batch[2:]),
    ]


def index(calls, op, occurrence=0):
    return [i for i, call in enumerate(calls) if call[0] == op][occurrence]


def answer(calls, op, outcome, value, occurrence=0):
    i = index(calls, op, occurrence)
    calls[i] = (*calls[i][:2], outcome, value)


@plant('no money is lost')
def a_balance_changed_without_a_ledger(calls, tables):
    tables['account'][0]['balance'] += 1


@plant('commits at most once')
def an_effect_twice(calls, tables):
    tables['ledger'].append({**tables['ledger'][1], 'attempt': 2})


@plant('a completed saga has every effect')
def an_effect_lost(calls, tables):
    del tables['ledger'][3]


@plant('a completed saga has every effect')
def a_completed_saga_undone(calls, tables):
    tables['ledger'].append(effect(9, 's1', 'transfer', 'close', 'compensate', 1, 0))


@plant('a failed saga has undone')
def a_compensation_lost(calls, tables):
    del tables['ledger'][7]


@plant('a failed saga has undone')
def a_compensation_out_of_order(calls, tables):
    ledger = tables['ledger']
    ledger[6], ledger[7] = ledger[7], ledger[6]


@plant('a failed saga has undone')
def an_act_after_the_compensation(calls, tables):
    ledger = tables['ledger']
    ledger[5], ledger[6] = ledger[6], ledger[5]


@plant('belongs to a saga that exists')
def an_effect_of_no_saga(calls, tables):
    tables['ledger'].append(effect(9, 's9', 'order', 'hold', 'act', 1, 0))


@plant('a transaction commits whole')
def half_a_move(calls, tables):
    del tables['direct'][1]


@plant('an acknowledged start is there')
def a_start_lost(calls, tables):
    del tables['saga'][0]


@plant('an acknowledged start is there')
def a_refused_start_that_is_there(calls, tables):
    answer(calls, 'start', 'error', None, 2)


@plant('an acknowledged start is there')
def a_saga_nobody_asked_for(calls, tables):
    tables['saga'].append({**tables['saga'][0], 'saga_id': 's7', 'key': 'zzz'})


@plant('one key is one saga')
def another_id_for_the_same_key(calls, tables):
    answer(calls, 'start', 'ok', {'saga_id': 's8', 'created': False}, 1)


@plant('one key is one saga')
def created_twice(calls, tables):
    answer(calls, 'start', 'ok', {'saga_id': 's1', 'created': True}, 1)


@plant('every saga came to its end')
def a_saga_that_hangs(calls, tables):
    tables['saga'][0]['status'] = 'running'


@plant('every saga came to its end')
def parked_without_a_reason(calls, tables):
    tables['saga'][0]['status'] = 'parked'


@plant('is told once')
def a_change_told_twice(calls, tables):
    tables['life'].append(tables['life'][3])


@plant('is told once')
def an_end_that_was_not_told(calls, tables):
    del tables['life'][3]


@plant('is told once')
def changes_told_out_of_order(calls, tables):
    tables['life'].insert(0, tables['life'].pop())


@plant('is paused')
def a_claim_of_a_paused_definition(calls, tables):
    calls.append(calls.pop(index(calls, 'unpause')))


@plant('is paused')
def a_claim_of_a_paused_queue(calls, tables):
    calls[index(calls, 'pause', 1)][1]['seconds'] = None


@plant('is paused')
def messages_of_a_paused_subscription(calls, tables):
    calls.insert(0, ('pause', {'kind': 'subscription', 'name': 'pull', 'seconds': None}, 'ok', None))


@plant('one owner')
def a_lease_handed_out_twice(calls, tables):
    calls.append(calls[index(calls, 'claim')])


@plant('completed under one lease')
def two_completions(calls, tables):
    _, args, outcome, value = calls[index(calls, 'complete')]
    calls.append(('complete', {**args, 'lease': 8}, outcome, value))


@plant('only under the latest lease')
def an_answer_under_a_lease_that_was_replaced(calls, tables):
    i = index(calls, 'claim')
    _, args, outcome, (step,) = calls[i]
    calls.insert(i + 1, ('claim', args, outcome, [{**step, 'attempt': 2, 'lease': 8}]))


@plant('only under the latest lease')
def an_acknowledgement_of_a_batch_that_was_replaced(calls, tables):
    i = index(calls, 'receive')
    op, args, outcome, batch = calls[i]
    calls.insert(i + 1, (op, args, outcome, [{**message, 'batch': 2} for message in batch]))


@plant('no token has two owners')
def a_token_of_two_nodes(calls, tables):
    calls[index(calls, 'ranges', 1)][3]['ranges'][0]['end'] = 5


@plant('no token has two owners')
def an_epoch_that_goes_back(calls, tables):
    calls[index(calls, 'ranges', 1)][3]['epoch'] = 0


@plant('a signal is accepted once')
def a_signal_twice(calls, tables):
    tables['signalled'] *= 2


@plant('a signal is accepted once')
def a_signal_lost(calls, tables):
    tables['signalled'].clear()


@plant('an idempotency key has one answer')
def a_payment_twice(calls, tables):
    tables['paid'].append({'key': 'p', 'nonce': 'n5'})


@plant('an idempotency key has one answer')
def another_answer_for_the_same_key(calls, tables):
    answer(calls, 'pay', 'ok', {'nonce': 'n5', 'replay': True}, 1)


@plant('an idempotency key has one answer')
def another_request_accepted(calls, tables):
    answer(calls, 'pay', 'ok', {'nonce': 'n1', 'replay': True}, 2)


@plant('an idempotency key has one answer')
def a_payment_lost(calls, tables):
    tables['paid'].clear()


@plant('a version of a value')
def a_version_twice(calls, tables):
    tables['versioned'].append({'key': 'v', 'version': 1, 'nonce': 'n9'})


@plant('a version of a value')
def a_version_lost(calls, tables):
    tables['versioned'].clear()


@plant('a sequence number of a producer')
def a_sequence_number_twice(calls, tables):
    tables['sequenced'].append(tables['sequenced'][0])


@plant('a sequence number of a producer')
def a_sequence_number_lost(calls, tables):
    del tables['sequenced'][0]


@plant('an acknowledged publish is there')
def a_publish_lost(calls, tables):
    del tables['sent'][0]


@plant('an acknowledged publish is there')
def a_rolled_back_publish(calls, tables):
    tables['sent'].append({**tables['sent'][0], 'nonce': 'm9', 'message_id': 'id9'})


@plant('takes effect exactly once')
def a_message_lost(calls, tables):
    tables['delivered'] = [row for row in tables['delivered']
                           if (row['subscription'], row['n']) != ('batch', 2)]


@plant('takes effect exactly once')
def a_message_twice(calls, tables):
    tables['delivered'].append(next(row for row in tables['delivered'] if row['subscription'] == 'loose'))


@plant('takes effect exactly once')
def a_message_that_was_never_sent(calls, tables):
    tables['delivered'].append(message('loose', 9, 'k1', 9, 'm9', 'id9'))


@plant('what a handler publishes')
def a_derived_message_twice(calls, tables):
    tables['sent'].append({**tables['sent'][3], 'message_id': 'id5'})


@plant('in the order of their publishing')
def messages_out_of_order(calls, tables):
    rows = [row for row in tables['delivered'] if row['subscription'] == 'ledger']
    rows[0].update(n=2, nonce='m2', message_id='id2')
    rows[1].update(n=1, nonce='m1', message_id='id1')


@plant('nothing is delivered after')
def a_delivery_after_its_acknowledgement(calls, tables):
    calls.append(calls[index(calls, 'receive')])


@plant('a message is received only after')
def a_message_before_the_one_before_it(calls, tables):
    i, j = index(calls, 'receive'), index(calls, 'receive', 1)
    calls.insert(i, calls.pop(j))


@plant('no subscription has anything left')
def a_message_that_is_left(calls, tables):
    tables['subscription'][0]['lag_messages'] = 1


@plant('the server logged nothing')
def a_panic(calls, tables):
    tables['log'] = ['PANIC:  stuck']


class RunFolder:
    """Calls and tables as the harness leaves them in a folder."""

    def __init__(self, path, calls, tables):
        self.path = pathlib.Path(path)
        (self.path / 'history').mkdir()
        recorder = Recorder(self.path / 'history', 'client-1.1')
        for op, args, outcome, value in calls:
            call = recorder.call(op, args)
            if outcome != 'unknown':
                recorder.answer(call, outcome, value)
        recorder.file.close()
        (self.path / 'server.log').write_text('\n'.join(tables.get('log', ())))
        (self.path / 'tables.json').write_text(json.dumps(tables))

    def lose(self):
        """A failover lost what was answered in the whole run."""
        (self.path / 'faults.jsonl').write_text(json.dumps({'lost': True, 'begin': 0, 'end': time.monotonic_ns()}))

    def violations(self):
        """The promises that were broken, and those for which nothing was checked."""
        tables = check.load_tables(self.path, None)
        calls = doubt_lost(read_history(self.path / 'history'), self.path / 'faults.jsonl')
        results = list(check.check(History(calls), tables))
        return ({sentence for sentence, _, wrong in results if wrong},
                {sentence for sentence, checked, _ in results if not checked})


class CheckerTest(unittest.TestCase):
    def run_of(self, function=lambda calls, tables: None):
        calls, tables = sound_calls(), copy.deepcopy(sound_tables())
        function(calls, tables)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return RunFolder(folder.name, calls, tables)

    def test_a_sound_run_breaks_no_promise(self):
        self.assertEqual(self.run_of().violations(), (set(), set()))

    def test_every_planted_violation_is_reported(self):
        for sentence, function in PLANTS:
            with self.subTest(function.__name__):
                self.assertIn(sentence, self.run_of(function).violations()[0])

    def test_what_a_failover_may_have_lost_may_be_missing(self):
        missing = {function: sentence for sentence, function in PLANTS}
        for function in (a_start_lost, a_publish_lost):
            run = self.run_of(function)
            self.assertIn(missing[function], run.violations()[0])
            run.lose()
            self.assertNotIn(missing[function], run.violations()[0])

    def test_the_order_of_claims_that_were_under_way_together_is_not_known(self):
        run = self.run_of()
        calls = read_history(run.path / 'history')
        claim = calls[index([(call['op'],) for call in calls], 'claim')]
        step, = claim['value']
        # Handed out before it, and the answer comes after its own: the client was told of a lease that had ended.
        (run.path / 'history' / 'client-2.1.jsonl').write_text('\n'.join(map(json.dumps, (
            {'call': 1, 'op': 'claim', 'args': {}, 'at': claim['begin'] - 1},
            {'answer': 1, 'outcome': 'ok', 'value': [{**step, 'attempt': 0, 'lease': 6}], 'sqlstate': None,
             'at': claim['end'] + 1}))))
        self.assertEqual(run.violations(), (set(), set()))

    def test_a_failover_does_not_excuse_an_effect_twice(self):
        run = self.run_of(an_effect_twice)
        run.lose()
        self.assertTrue(run.violations()[0])

    def test_every_promise_has_a_planted_violation(self):
        self.assertEqual({sentence for sentence, _ in PLANTS}, set(PROMISES))

    def test_the_program_exits_with_1_on_a_violation(self):
        for function, status in ((lambda calls, tables: None, 0), (an_effect_twice, 1)):
            done = subprocess.run([sys.executable, '-B', HERE / 'check.py', self.run_of(function).path],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)

    def test_a_history_in_the_form_of_elle(self):
        run = self.run_of()
        subprocess.run([sys.executable, '-B', HERE / 'check.py', run.path], capture_output=True, check=True)
        lines = [line.split(':type ')[1] for line in (run.path / 'outbox.edn').read_text().splitlines()]
        self.assertEqual(lines, [
            ':invoke, :process 0, :f :txn, :value [[:append "k1" 1] [:append "k1" 2]]}',
            ':ok, :process 0, :f :txn, :value [[:append "k1" 1] [:append "k1" 2]]}',
            ':invoke, :process 0, :f :txn, :value [[:append "k1" 3]]}',
            ':invoke, :process 1, :f :txn, :value [[:r "k1" nil]]}',
            ':ok, :process 1, :f :txn, :value [[:r "k1" [1 2]]]}'])


if __name__ == '__main__':
    unittest.main()
