"""The promises that the checker checks: each a function of the history and the final tables.

It returns how many facts it looked at, and a list of violations, as text. A call whose outcome is unknown
may have committed or not, and is allowed either way. PROMISES maps the sentence to its function.
"""

from collections import Counter, defaultdict

PROMISES = {}

# The steps of each saga that write the ledger, in the order of their actions.
EFFECTS = {'transfer': ['debit', 'credit', 'confirm', 'close'], 'order': ['hold', 'charge', 'close'],
           'patient': ['hold', 'charge', 'close'], 'family': ['hold', 'ship', 'close']}
# Sagas whose changes of status are published.
TOLD = ('transfer', 'patient')
# Subscriptions of the topic "event", and the ones that deliver the messages of a key in order.
EVENTS = ('ledger', 'batch', 'loose', 'pull')
ORDERED = ('ledger', 'batch', 'derived', 'pull')


def promise(sentence):
    def add(function):
        PROMISES[sentence] = function
        return function
    return add


class History:
    """The recorded calls, by operation."""

    def __init__(self, calls):
        self.calls = calls
        self.by_op = defaultdict(list)
        for call in calls:
            self.by_op[call['op']].append(call)

    def of(self, *ops, outcomes=('ok', 'error', 'unknown')):
        return [call for op in ops for call in self.by_op[op] if call['outcome'] in outcomes]


def of_any_instant():
    """The promises that the tables keep at any instant, whatever is still to be done: sentence, function."""
    functions = (conservation, at_most_once, completed, failed, effects_have_sagas, atomic, signals, idempotency,
                 versions, sequences, derived, key_order)
    return [(sentence, function) for sentence, function in PROMISES.items() if function in functions]


def grouped(rows, *columns):
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[column] for column in columns)].append(row)
    return groups


def started_ids(call):
    """key -> saga id of an answered start."""
    value = call['value']
    ids = value['saga_ids'] if 'saga_ids' in value else [value['saga_id']]
    return zip(call['args']['keys'], ids)


# Money and effects.

@promise('no money is lost or made: every balance is its opening and what the ledgers say')
def conservation(history, tables):
    expected = {row['id']: row['opening'] for row in tables['account']}
    for row in tables['ledger'] + tables['direct']:
        expected[row['account']] += row['amount']
    wrong = [f"account {row['id']} holds {row['balance']}, not {expected[row['id']]}"
             for row in tables['account'] if row['balance'] != expected[row['id']]]
    if all(row['status'] in ('completed', 'failed') for row in tables['saga']):
        now, then = (sum(row[column] for row in tables['account']) for column in ('balance', 'opening'))
        if now != then:
            wrong.append(f'all accounts hold {now}, {then} at the start')
    return len(expected) + 1, wrong


@promise('the effect of a saga, step and direction commits at most once')
def at_most_once(history, tables):
    groups = grouped(tables['ledger'], 'saga_id', 'step', 'direction')
    return len(groups), [f'{key}: {len(rows)} times' for key, rows in groups.items() if len(rows) > 1]


def effects_by_saga(tables):
    ledger = grouped(tables['ledger'], 'saga_id')
    for saga in tables['saga']:
        rows = ledger.get((saga['saga_id'],), [])
        yield saga, rows, [[row['step'] for row in rows if row['direction'] == direction]
                           for direction in ('act', 'compensate')]


@promise('a completed saga has every effect once, in order, and no compensation')
def completed(history, tables):
    sagas = [entry for entry in effects_by_saga(tables) if entry[0]['status'] == 'completed']
    return len(sagas), [
        f"{saga['saga']} {saga['saga_id']}: did {acts}, undid {undone}"
        for saga, rows, (acts, undone) in sagas
        if acts != EFFECTS[saga['saga']] or undone or sum(row['amount'] for row in rows) != 0]


@promise('a failed saga has undone what it did, once each, in reverse order, and acts no more after that')
def failed(history, tables):
    sagas = [entry for entry in effects_by_saga(tables) if entry[0]['status'] == 'failed']
    wrong = []
    for saga, rows, (acts, undone) in sagas:
        directions = [row['direction'] for row in rows]
        if undone != acts[::-1] or directions != sorted(directions) or sum(row['amount'] for row in rows):
            wrong.append(f"{saga['saga']} {saga['saga_id']}: did {acts}, undid {undone}, in order {directions}")
    return len(sagas), wrong


@promise('every effect belongs to a saga that exists')
def effects_have_sagas(history, tables):
    known = {row['saga_id'] for row in tables['saga']}
    return len(tables['ledger']), [f"{row['step']} of {row['saga_id']}" for row in tables['ledger']
                                   if row['saga_id'] not in known]


@promise('a transaction commits whole: a move of money has both of its sides or none')
def atomic(history, tables):
    sides = Counter(row['nonce'] for row in tables['direct'])
    wrong = [f'{nonce}: {count} sides' for nonce, count in sides.items() if count != 2]
    for call in history.of('move', outcomes=('ok', 'error')):
        if (call['args']['nonce'] in sides) != (call['outcome'] == 'ok'):
            wrong.append(f"{call['args']['nonce']} was answered {call['outcome']}")
    return len(history.of('move')), wrong


# Starts and ends.

@promise('an acknowledged start is there, a refused one is not, and there is no saga that nobody asked for')
def starts(history, tables):
    by_key = {(row['saga'], row['key']): row for row in tables['saga'] if row['parent_id'] is None}
    asked, perhaps, wrong = set(), set(), []
    for call in history.of('start'):
        keys = [(call['args']['saga'], key) for key in call['args']['keys']]
        asked.update(keys)
        if call['outcome'] != 'error':
            perhaps.update(keys)
        if call['outcome'] == 'ok':
            wrong += [f"{call['args']['saga']} {key} was answered {saga_id} and is not there"
                      for key, saga_id in started_ids(call)
                      if by_key.get((call['args']['saga'], key), {}).get('saga_id') != saga_id]
            if 'input' in call['args'] and keys[0] in by_key \
                    and by_key[keys[0]]['input'] != call['args']['input']:
                wrong.append(f'{keys[0]} has another input')
    wrong += [f'{key} was refused and is there' for key in asked - perhaps if key in by_key]
    wrong += [f'nobody asked for {key}' for key in by_key if key not in asked]
    return len(asked), wrong


@promise('one key is one saga: its id is the same in every answer')
def same_saga(history, tables):
    ids, created = defaultdict(set), Counter()
    for call in history.of('start', outcomes=('ok',)):
        for key, saga_id in started_ids(call):
            ids[call['args']['saga'], key].add(saga_id)
            created[call['args']['saga'], key] += call['value'].get('created', False)
    return len(ids), [f'{key} has {len(found)} ids' for key, found in ids.items() if len(found) > 1] + [
        f'{key} was created {count} times' for key, count in created.items() if count > 1]


@promise('every saga came to its end, or is parked with a reason')
def ended(history, tables):
    reasons = {row['saga_id'] for row in tables['parked'] if row['error']}
    return len(tables['saga']), [
        f"{row['saga']} {row['saga_id']} is {row['status']}" for row in tables['saga']
        if row['status'] not in ('completed', 'failed')
        and not (row['status'] == 'parked' and row['saga_id'] in reasons)]


@promise('each change of the status of a saga with events is told once, in order, and nothing else is')
def told(history, tables):
    heard = grouped(tables['life'], 'saga_id')
    sagas = {row['saga_id']: row for row in tables['saga'] if row['saga'] in TOLD}
    wrong = [f'{saga_id}: told {len(rows)} times, and there is no such saga'
             for (saga_id,), rows in heard.items() if saga_id not in sagas]
    wrong += [f'message {name} took effect {count} times'
              for name, count in Counter(row['message_id'] for row in tables['life']).items() if count > 1]
    for saga_id, saga in sagas.items():
        changes = [row['status'] for row in heard.get((saga_id,), ())]
        # A saga that nothing has touched yet was not changed: only its start, which is not told.
        if (changes or ['pending'])[-1] != saga['status']:
            wrong.append(f"{saga['saga']} {saga_id} is {saga['status']}, told were {changes}")
        for earlier, later in zip(changes, changes[1:]):
            if earlier in ('completed', 'failed') and not (earlier == 'completed' and later == 'compensating'
                                                           and saga['parent_id']):
                wrong.append(f'{saga_id}: {later} after {earlier}')
            elif earlier == later != 'suspended':
                wrong.append(f'{saga_id}: {later} twice')
        undone = changes[changes.index('compensating'):] if 'compensating' in changes else []
        if {'pending', 'running', 'completed'} & set(undone):
            wrong.append(f'{saga_id} went forward after compensating: {changes}')
    return len(sagas), wrong


# Claims, leases, signals.

def pauses(history):
    """kind, name -> spans in which it surely was paused: until somebody may have resumed it."""
    spans = defaultdict(list)
    ends = history.of('unpause', outcomes=('ok', 'unknown'))
    for call in history.of('pause', outcomes=('ok',)):
        args = call['args']
        if args['seconds'] is None:
            end = min((other['begin'] for other in ends if other['begin'] > call['begin'] and
                       (other['args']['kind'], other['args']['name']) == (args['kind'], args['name'])),
                      default=float('inf'))
            spans[args['kind'], args['name']].append((call['end'], end))
    return spans


@promise('nothing begins of a queue, a definition or a subscription that is paused')
def paused(history, tables):
    spans, wrong, checked = pauses(history), [], 0

    def look(call, kind, name):
        if any(begin < call['begin'] and call['end'] < end for begin, end in spans[kind, name]):
            wrong.append(f"{call['process']} was given something of the {kind} {name}, which was paused")
    for call in history.of('claim', outcomes=('ok',)):
        for step in call['value'] or ():
            checked += 1
            if step['direction'] == 'act':   # compensations are done all the same
                look(call, 'queue', 'payments')
                look(call, 'definition', step['saga'])
    for call in history.of('receive', outcomes=('ok',)):
        if call['value']:
            checked += 1
            look(call, 'subscription', call['args']['subscription'])
    return checked, wrong



@promise('an attempt of a step has one owner: no lease is handed out twice, no attempt is claimed twice')
def one_owner(history, tables):
    leases, attempts = Counter(), Counter()
    for call in history.of('claim', outcomes=('ok',)):
        for step in call['value'] or ():
            name = step['saga_id'], step['step'], step['direction']
            leases[*name, step['lease']] += 1
            attempts[*name, step['attempt']] += 1
    return len(leases), [f'lease {key}' for key, count in leases.items() if count > 1] + [
        f'attempt {key}' for key, count in attempts.items() if count > 1]


@promise('a step is completed under one lease only')
def one_completion(history, tables):
    leases = defaultdict(set)
    for call in history.of('complete', outcomes=('ok',)):
        args = call['args']
        leases[args['saga_id'], args['step'], args['direction']].add(str(args['lease']))
    return len(leases), [f'{step}: {len(found)} leases' for step, found in leases.items() if len(found) > 1]


@promise('an answer counts only under the latest lease of its step or batch')
def latest_lease(history, tables):
    # Every lease that was seen for a step or a message: when its claim began, when the answer had come, and which.
    leases, answers, wrong, doubtful = defaultdict(list), [], [], set()
    for call in history.of('claim', 'receive', outcomes=('ok', 'unknown')):
        for item in call['value'] or ():
            if call['op'] == 'claim':
                name, lease = (item['saga_id'], item['step'], item['direction']), item['lease']
            else:
                name, lease = (call['args']['subscription'], item['message_id']), item['batch']
            if call['outcome'] == 'ok':
                leases[name].append((call['begin'], call['end'], lease))
            else:   # a failover may have lost the claim, or not
                doubtful.add((name, lease))
    for call in history.of('complete', 'ack', outcomes=('ok',)):
        args = call['args']
        if call['op'] == 'complete':
            answers.append((call['begin'], (args['saga_id'], args['step'], args['direction']), args['lease']))
        else:
            answers += [(call['begin'], (args['subscription'], message_id), args['batch'])
                        for message_id in args['message_ids']]
    for begin, name, lease in answers:
        # Of two claims that were under way together nobody knows which came first: an answer may be on its way
        # for longer than its lease lasts.
        own = max((end for _, end, other in leases[name] if other == lease), default=0)
        later = [other for start, end, other in leases[name] if other != lease and own < start and end < begin]
        if later and (name, lease) not in doubtful:
            wrong.append(f'{name} was answered under {lease}, after {later[-1]} had been handed out')
    return len(answers), wrong


@promise("no token has two owners at an instant, and the ring's epoch never goes back")
def token_owners(history, tables):
    wrong, checked, epoch = [], 0, 0
    for call in history.of('ranges', outcomes=('ok',)):
        if call['value']['epoch'] < epoch:
            wrong.append(f"epoch {epoch}, then {call['value']['epoch']}")
        epoch = call['value']['epoch_after']
        if epoch != call['value']['epoch']:   # an owner changed while the nodes were asked
            continue
        ranges = sorted(call['value']['ranges'], key=lambda part: part['start'])
        checked += len(ranges)
        wrong += [f"{left['node']} and {right['node']} both own token {right['start']}"
                  for left, right in zip(ranges, ranges[1:]) if right['start'] <= left['end']]
    return checked, wrong


@promise('a signal is accepted once for each message id, and together with the effect beside it')
def signals(history, tables):
    rows = Counter(row['message_id'] for row in tables['signalled'])
    wrong = [f'{name}: {count} times' for name, count in rows.items() if count > 1]
    accepted = Counter(call['args']['message_id'] for call in history.of('signal', outcomes=('ok',))
                       if call['value']['accepted'])
    wrong += [f'{name} was answered true {count} times' for name, count in accepted.items() if count > 1]
    wrong += [f'{name} was accepted and left nothing' for name in accepted if name not in rows]
    return len({call['args']['message_id'] for call in history.of('signal')}), wrong


# Idempotency keys, values, sequences.

@promise('an idempotency key has one answer, to one request, and its effect once')
def idempotency(history, tables):
    effects = grouped(tables['paid'], 'key')
    wrong = [f'{key[0]}: {len(rows)} effects' for key, rows in effects.items() if len(rows) > 1]
    answers, requests = defaultdict(set), defaultdict(set)
    refused, nonces = [], {row['nonce'] for row in tables['paid']}
    for call in history.of('pay'):
        key = call['args']['key']
        if call['outcome'] == 'ok':
            answers[key].add(call['value']['nonce'])
            requests[key].add(call['args']['request']['variant'])
        elif call['outcome'] == 'error':
            refused.append(call['args']['nonce'])
    wrong += [f'{key} has {len(found)} answers' for key, found in answers.items() if len(found) > 1]
    wrong += [f'{key} accepted {len(found)} requests' for key, found in requests.items() if len(found) > 1]
    for key, found in answers.items():
        if {row['nonce'] for row in effects.get((key,), [])} != found:
            wrong.append(f'{key} was answered {found}, its effect is another')
    wrong += [f'{nonce} was refused and took effect' for nonce in refused if nonce in nonces]
    return len(history.of('pay')), wrong


@promise('a version of a value is written once, and what was acknowledged is there')
def versions(history, tables):
    groups = grouped(tables['versioned'], 'key', 'version')
    wrong = [f'{key}: {len(rows)} times' for key, rows in groups.items() if len(rows) > 1]
    nonces = {row['nonce']: row['version'] for row in tables['versioned']}
    for call in history.of('set', outcomes=('ok', 'error')):
        nonce = call['args']['nonce']
        expected = call['value']['version'] if call['outcome'] == 'ok' else None
        if nonces.get(nonce) != expected:
            wrong.append(f"{nonce} was answered {call['outcome']}, its version is {nonces.get(nonce)}")
    return len(history.of('set')), wrong


@promise('a sequence number of a producer is accepted once, and none is skipped')
def sequences(history, tables):
    rows = Counter((row['epoch'], row['sequence']) for row in tables['sequenced'])
    wrong = [f'{key}: {count} times' for key, count in rows.items() if count > 1]
    wrong += [f'{(epoch, sequence)} came before the one before it' for epoch, sequence in rows
              if sequence > 1 and (epoch, sequence - 1) not in rows]
    asked = grouped([{**call['args'], 'call': call} for call in history.of('sequence')], 'epoch', 'sequence')
    for key, calls in asked.items():
        outcomes = {row['call']['outcome'] for row in calls}
        if 'ok' in outcomes and key not in rows:
            wrong.append(f'{key} was acknowledged and is not there')
        elif outcomes == {'error'} and key in rows:
            wrong.append(f'{key} was refused and took effect')
    return len(asked), wrong


# The outbox.

@promise('an acknowledged publish is there, a rolled back one is not')
def publishes(history, tables):
    sent = {row['nonce'] for row in tables['sent']}
    wrong, asked = [], 0
    for call in history.of('publish'):
        for nonce in call['args']['nonces']:
            asked += 1
            if call['outcome'] != 'unknown' and (nonce in sent) != (call['outcome'] == 'ok'):
                wrong.append(f"{nonce} was answered {call['outcome']}")
    return asked, wrong


def discarded_ids(history):
    return {str(call['args']['message_id']) for call in history.of('discard', outcomes=('ok', 'unknown'))}


@promise('every committed message takes effect exactly once in each subscription, and no other message does')
def exactly_once(history, tables):
    wrong, checked = [], 0
    delivered = Counter((row['subscription'], row['message_id']) for row in tables['delivered'])
    subscribed = {'event': EVENTS, 'derived': ('derived',)}
    discarded, expected = discarded_ids(history), set()
    for row in tables['sent']:
        for subscription in subscribed[row['topic']]:
            checked += 1
            name = subscription, row['message_id']
            expected.add(name)
            least = 0 if subscription == 'pull' and row['message_id'] in discarded else 1
            if not least <= delivered[name] <= 1:
                wrong.append(f"{row['nonce']} of key {row['key']}, number {row['n']}: "
                             f'{delivered[name]} times in {subscription}')
    wrong += [f'{name} was never sent' for name in delivered if name not in expected]
    return checked, wrong


@promise('what a handler publishes is published once, with its effect')
def derived(history, tables):
    published = Counter(row['nonce'] for row in tables['sent'] if row['topic'] == 'derived')
    expected = Counter(row['nonce'] for row in tables['delivered']
                       if row['subscription'] == 'ledger' and row['n'] % 3 == 0)
    return len(expected), [f'{nonce}: {published[nonce]} messages of {expected[nonce]} effects'
                           for nonce in published.keys() | expected.keys()
                           if published[nonce] != expected[nonce]]


@promise('the messages of a key take effect in the order of their publishing')
def key_order(history, tables):
    wrong, checked = [], 0
    rows = [row for row in tables['delivered'] if row['key'] is not None and not row['is_delayed']]
    for (subscription, key), group in grouped(rows, 'subscription', 'key').items():
        if subscription not in ORDERED:
            continue
        for earlier, later in zip(group, group[1:]):
            checked += 1
            if later['n'] <= earlier['n']:
                wrong.append(f"{subscription}, key {key}: {later['n']} after {earlier['n']}")
    return checked, wrong


class Acknowledgements:
    """When a message of a subscription may first have been, and when it surely was, acknowledged."""

    def __init__(self, history):
        self.possibly, self.surely = {}, {}
        for call in history.of('ack', 'discard', outcomes=('ok', 'unknown')):
            args = call['args']
            for message_id in args['message_ids'] if 'message_ids' in args else [args['message_id']]:
                name = args['subscription'], str(message_id)
                self.possibly[name] = min(self.possibly.get(name, call['begin']), call['begin'])
                if call['outcome'] == 'ok':
                    self.surely[name] = min(self.surely.get(name, call['end']), call['end'])


@promise('nothing is delivered after its acknowledgement')
def nothing_after(history, tables):
    surely, wrong, checked = Acknowledgements(history).surely, [], 0
    for call in history.of('receive', outcomes=('ok',)):
        for message in call['value'] or ():
            checked += 1
            name = call['args']['subscription'], str(message['message_id'])
            if surely.get(name, call['begin']) < call['begin']:
                wrong.append(f"{name} was delivered to {call['process']} again")
    return checked, wrong


@promise('a message is received only after the one before it of its key was acknowledged, or with it')
def received_in_order(history, tables):
    before, last = {}, {}
    sent = [row for row in tables['sent'] if row['topic'] == 'event' and row['key'] is not None
            and not row['is_delayed']]
    for row in sorted(sent, key=lambda row: row['n']):
        before[row['message_id']] = last.get(row['key'])
        last[row['key']] = row['message_id']
    possibly, wrong, checked = Acknowledgements(history).possibly, [], 0
    for call in history.of('receive', outcomes=('ok',)):
        if call['args']['subscription'] != 'pull':
            continue
        here = set()
        for message in call['value'] or ():
            earlier = before.get(str(message['message_id']))
            here.add(str(message['message_id']))
            if earlier is None:
                continue
            checked += 1
            if earlier not in here and possibly.get(('pull', earlier), call['end']) >= call['end']:
                wrong.append(f"{message['message_id']} of key {message['key']} came before {earlier}")
    return checked, wrong


@promise('no subscription has anything left')
def drained(history, tables):
    return len(tables['subscription']), [
        str(row) for row in tables['subscription']
        if row['lag_messages'] or row['blocked_keys'] or row['dead_messages']]


@promise('the server logged nothing that tells of a bug')
def clean_log(history, tables):
    return 1, tables['log']
