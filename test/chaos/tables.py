"""The final tables of a run: read through the extension's views and from the harness's own ledgers."""

import json
import re

QUERIES = {
    'account': 'SELECT id, balance, opening FROM bank.account',
    'ledger': 'SELECT seq, saga_id, saga, step, direction, attempt, account, amount FROM bank.ledger ORDER BY seq',
    'direct': 'SELECT nonce, account, amount FROM bank.direct',
    'saga': 'SELECT saga_id, saga, key, status, input, parent_id, last_error FROM stacksaga.sagas',
    'parked': 'SELECT saga_id, error FROM stacksaga.parked_sagas',
    'sent': 'SELECT topic, key, n, nonce, message_id, is_delayed FROM bank.sent',
    'delivered': """SELECT seq, subscription, key, n, nonce, message_id, is_delayed FROM bank.delivered
                     ORDER BY seq""",
    'life': 'SELECT seq, saga_id, status, message_id FROM bank.life ORDER BY seq',
    'paid': 'SELECT key, nonce FROM bank.paid',
    'versioned': 'SELECT key, version, nonce FROM bank.versioned',
    'sequenced': 'SELECT producer, epoch, sequence FROM bank.sequenced',
    'signalled': 'SELECT saga_id, message_id FROM bank.signalled',
    'subscription': """SELECT subscription, lag_messages, blocked_keys, dead_messages
                         FROM stacksaga.subscriptions""",
}

# What a server may log only if something is broken. Signal 9 is the harness's own, and so is a full disk.
BROKEN = re.compile(r'PANIC|TRAP:|terminated by signal (?!9\b)\d+|cache lookup failed|tuple concurrently'
                    r'|invalid memory alloc|could not find tuple|missing chunk|stuck spinlock')


def of_database(connection):
    """Every table of one snapshot, as a list of dicts, with ids as text."""
    found = {}
    with connection.transaction():
        connection.execute('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
        for name, query in QUERIES.items():
            cursor = connection.execute(query)
            columns = [column.name for column in cursor.description]
            rows = [dict(zip(columns, row)) for row in cursor]
            found[name] = json.loads(json.dumps(rows, default=str))
    return found


def of_log(path):
    """The lines of a server's log that tell of something broken; none if there is no log."""
    if not path.exists():
        return []
    broken, expected = [], 0
    with open(path, encoding='utf-8', errors='replace') as log:
        for line in log:
            if not BROKEN.search(line):
                continue
            if 'No space left on device' in line:
                expected += 'PANIC' in line    # such a process aborts itself
            elif expected and 'terminated by signal 6' in line:
                expected -= 1
            else:
                broken.append(line.strip())
    return broken
