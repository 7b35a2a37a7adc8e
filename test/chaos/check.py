"""check.py [--database NAME] FOLDER: checks what a run recorded, and prints promise, checked, violations.

With --database it reads the final tables from there and keeps them in the folder; without, it reads the
ones that were kept. Shares no code and no queries with the extension. Exits 1 if a promise was broken.
"""

import argparse
import json
import pathlib
import sys
from collections import Counter

import psycopg

import elle
import tables as final_tables
from promises import PROMISES, History
from recorder import doubt_lost, read_history

EXAMPLES = 5


def load_tables(folder, database):
    kept = folder / 'tables.json'
    if database is not None:
        with psycopg.connect(dbname=database) as connection:
            kept.write_text(json.dumps(final_tables.of_database(connection)))
    tables = json.loads(kept.read_text())
    tables['log'] = final_tables.of_log(folder / 'server.log')
    return tables


def check(history, tables):
    """Yields the sentence of each promise, how many facts were checked, and its violations."""
    for sentence, function in PROMISES.items():
        yield (sentence, *function(history, tables))


def report(history, tables):
    """Prints the table of promises, and returns it as data."""
    promises = []
    print(f'{"checked":>9} {"violations":>10}  promise')
    for sentence, checked, violations in check(history, tables):
        promises.append({'promise': sentence, 'checked': checked, 'violations': len(violations)})
        print(f'{checked:9} {len(violations):10}  {sentence}')
        for example in violations[:EXAMPLES]:
            print(f'{"":22}NOT OK: {example}')
    outcomes = Counter(call['outcome'] for call in history.calls)
    fenced = sum(call['sqlstate'] == 'SG412' for call in history.calls)
    print(f'{len(history.calls)} calls: {outcomes["ok"]} ok, {outcomes["error"]} refused, '
          f'{outcomes["unknown"]} unknown; {fenced} of those refused by a fence (SG412)')
    return {'promises': promises, 'calls': len(history.calls), 'refused': outcomes['error'],
            'unknown': outcomes['unknown'], 'fenced': fenced, 'sagas': len(tables['saga'])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--database')
    parser.add_argument('folder', type=pathlib.Path)
    arguments = parser.parse_args()
    tables = load_tables(arguments.folder, arguments.database)
    history = History(doubt_lost(read_history(arguments.folder / 'history'), arguments.folder / 'faults.jsonl'))
    checked = report(history, tables)
    (arguments.folder / 'checked.json').write_text(json.dumps(checked, indent=1))
    elle.write(arguments.folder / 'outbox.edn', history, tables)
    sys.exit(1 if any(promise['violations'] for promise in checked['promises']) else 0)


if __name__ == '__main__':
    main()
