"""The history of the outbox in the list-append form that Elle reads: a publish appends a message's number
to the list of its key, and an acknowledgement in the subscription "pull" reads the list up to there.

Delayed messages have no order, and messages without a key no list; both are left out. A consumer reads
each key for itself: what it has of two keys is no snapshot of the log.
"""


def operations(history, tables):
    """Yields (call, name of the process, value at the invocation, value at the end)."""
    number = {row['nonce']: row['n'] for row in tables['sent'] if not row['is_delayed']}
    for call in history.of('publish'):
        key = call['args']['key']
        numbers = [number[nonce] for nonce in call['args']['nonces'] if nonce in number]
        if key is not None and numbers:
            value = [('append', key, n) for n in numbers]
            yield call, call['process'], value, value
    lists, places = {}, {}
    for row in tables['delivered']:
        if row['subscription'] == 'pull' and row['key'] is not None and not row['is_delayed']:
            numbers = lists.setdefault(row['key'], [])
            numbers.append(row['n'])
            places[row['message_id']] = row['key'], len(numbers)
    for call in history.of('ack', outcomes=('ok',)):
        if call['args']['subscription'] != 'pull':
            continue
        read = {}
        for message_id in call['args']['message_ids']:
            if str(message_id) in places:
                key, length = places[str(message_id)]
                read[key] = max(read.get(key, 0), length)
        for key, length in read.items():
            yield (call, f"{call['process']} of {key}", [('r', key, None)], [('r', key, lists[key][:length])])


def edn(value):
    def element(part):
        if part is None:
            return 'nil'
        if isinstance(part, list):
            return '[' + ' '.join(map(str, part)) + ']'
        return f'"{part}"' if isinstance(part, str) else str(part)
    return '[' + ' '.join(f'[:{f} {element(key)} {element(what)}]' for f, key, what in value) + ']'


def write(path, history, tables):
    """Writes one line of EDN for each invocation and each end of a call."""
    types = {'ok': ':ok', 'error': ':fail', 'unknown': ':info'}
    events, processes, names = [], 0, {}
    for call, name, before, after in sorted(operations(history, tables), key=lambda entry: entry[0]['begin']):
        # A process whose call has an unknown outcome makes no more calls: the next ones are another's.
        process = names.get(name)
        if process is None:
            process = names[name] = processes
            processes += 1
        if call['outcome'] == 'unknown':
            del names[name]
        events.append((call['begin'], ':invoke', process, before))
        if call['end'] is not None:
            events.append((call['end'], types[call['outcome']], process, after))
    with open(path, 'w', encoding='utf-8') as file:
        for index, (at, kind, process, value) in enumerate(sorted(events, key=lambda event: event[0])):
            file.write(f'{{:index {index}, :time {at}, :type {kind}, :process {process}, :f :txn, '
                       f':value {edn(value)}}}\n')
