"""proof.py FOLDER: prints docs/proof.md, made of promises.json and of the reports in FOLDER.
proof.py --check FOLDER: prints nothing, unless there is something to fail for.

FOLDER holds what `make proof` keeps of the runs: chaos.json, mutants.tsv, sweep.tsv, crash_points.tsv,
truth.tsv, and runs.json, which says of each with which commit, when and on what it ran; the page says which are missing.
Fails where promises.json names a test, a planted bug or a checked promise that is not there, or leaves a
planted bug out.
"""

import csv
import json
import pathlib
import sys
import textwrap

HERE = pathlib.Path(__file__).parent
TOP = HERE.parent.parent

RUNS = {
    'chaos': ('chaos.json', 'make chaos'),
    'mutants': ('mutants.tsv', 'make mutants'),
    'sweep': ('sweep.tsv', 'make sweep'),
    'crash points': ('crash_points.tsv', 'make crash-points'),
    'truth': ('truth.tsv', 'test/tools/truth --at-length'),
}


def rows_of(path):
    """The rows of a file of tab-separated values with a header, as dicts."""
    with open(path, encoding='utf-8') as file:
        return list(csv.DictReader(file, delimiter='\t'))


def paragraph(text):
    return textwrap.fill(' '.join(text.split()), 105, break_long_words=False, break_on_hyphens=False)


def table(header, rows):
    yield '| ' + ' | '.join(header) + ' |'
    yield '|' + '---|' * len(header)
    for row in rows:
        yield '| ' + ' | '.join(str(cell) for cell in row) + ' |'


class Proof:
    """What was promised and what the runs say of it."""

    def __init__(self, folder):
        data = json.loads((HERE / 'promises.json').read_text(encoding='utf-8'))
        self.promises, self.worth, self.found = data['promises'], data['worth'], data['found']
        runs = folder / 'runs.json'
        self.runs = json.loads(runs.read_text(encoding='utf-8')) if runs.exists() else {}
        self.chaos = json.loads((folder / 'chaos.json').read_text()) if 'chaos' in self.runs else None
        self.bugs, self.points, self.crashes, self.suites = (
            rows_of(folder / RUNS[run][0]) if run in self.runs else []
            for run in ('mutants', 'sweep', 'crash points', 'truth'))
        self.bugs = {row['name']: row for row in self.bugs}

    def faults(self):
        """What keeps this page from being true, as sentences."""
        named = {bug for promise in self.promises for bug in promise['bugs']}
        planted = {path.stem for path in (TOP / 'test' / 'mutants').glob('*.patch')}
        for bug in sorted(named - planted):
            yield f'promises.json names the bug {bug}, which is not in test/mutants'
        for bug in sorted(planted - named):
            yield f'no promise of promises.json names the planted bug {bug}'
        for promise in self.promises:
            for test in promise['tests']:
                if not any(TOP.glob(test)):
                    yield f'promises.json names the test {test}, which is not there'
            for words in promise['chaos']:
                if self.chaos and len(self.checked([words])) != 1:
                    yield f'"{words}" is not the beginning of one promise that the chaos run checked'

    def checked(self, beginnings):
        """The promises of the chaos run's checker that begin so."""
        return [checked for checked in (self.chaos['promises'] if self.chaos else ())
                if any(checked['promise'].startswith(words) for words in beginnings)]

    def is_caught(self, bug):
        return self.bugs.get(bug, {}).get('verdict') == 'caught'

    def promise_rows(self):
        for promise in self.promises:
            checked = self.checked(promise['chaos'])
            yield (promise['promise'], promise['ends'], ', '.join(f'`{test}`' for test in promise['tests']),
                   f"{sum(c['checked'] for c in checked):,}" if checked else '–',
                   sum(c['violations'] for c in checked) if checked else '–',
                   self.caught_of(promise['bugs']))

    def caught_of(self, bugs):
        planted = [bug for bug in bugs if bug in self.bugs]
        caught = sum(self.is_caught(bug) for bug in planted)
        later = f', {len(bugs) - len(planted)} not planted yet' if len(planted) < len(bugs) else ''
        return f'{caught} of {len(planted)}{later}' if self.bugs else '–'

    def bug_rows(self):
        for name, bug in sorted(self.bugs.items()):
            link = f'[{name}](../test/mutants/{name}.patch)'
            yield (link, bug['test'] if bug['verdict'] == 'caught' else bug['verdict'].upper(), bug['seconds'])

    def run_rows(self):
        for name, (_, command) in RUNS.items():
            run = self.runs.get(name)
            if run:
                yield name, f"`{run['command']}`", run['commit'], run['date'], run['machine']
            else:
                yield name, f'`{command}`', 'not run yet', '', ''

    def lines(self):
        yield '# Proof'
        yield ''
        yield paragraph('''This page is written by a script from the runs that it names; repeat them with the commands
            that stand beside them. It says of each promise where it ends, which tests guard it, how often a run under
            faults checked it and how often it was broken, and how many of the bugs that were planted against it were
            caught. [Guarantees](guarantees.md) says how each promise is kept.''')
        yield ''
        yield from table(('run', 'command', 'commit', 'date', 'machine'), self.run_rows())
        yield ''
        yield '## Promises'
        yield ''
        yield from table(('promise', 'where it ends', 'tests', 'facts checked under faults', 'violations',
                          'planted bugs caught'), self.promise_rows())
        yield ''
        if self.chaos:
            yield from self.chaos_lines()
        if self.bugs:
            yield from self.bug_lines()
        if self.crashes:
            yield from self.crash_lines()
        if self.suites:
            yield from self.truth_lines()
        if self.points:
            yield from self.load_lines()
        yield '## What a promise is worth elsewhere'
        yield ''
        yield from table(('', '`synchronous_commit = off`', 'on a standby', 'after a failover that lost transactions'),
                         ((w['what'], w['asynchronous commit'], w['standby'], w['lossy failover']) for w in self.worth))
        yield ''
        yield '## What was found, and by what'
        yield ''
        yield from table(('method', 'bugs'), ((f['method'], '; '.join(f['bugs'])) for f in self.found))

    def chaos_lines(self):
        chaos = self.chaos
        yield '## Faults'
        yield ''
        yield paragraph(f'''In {chaos['seconds']:,} seconds (seed {chaos['seed']}) {sum(chaos['faults'].values()):,}
            faults of {len(chaos['faults'])} kinds, {chaos['calls']:,} recorded calls and {chaos['sagas']:,} sagas:
            {chaos['refused']:,} calls were refused, {chaos['fenced']:,} of them by a fence (`SG412`), and of {chaos['unknown']:,} the answer was lost. The checker shares no code and no query
            with the extension.''')
        yield ''
        yield from table(('fault', 'times'), sorted(chaos['faults'].items()))
        yield ''
        yield paragraph('What a promise of the whole history was checked by, and what else the checker asks:')
        yield ''
        yield from table(('checked', 'facts', 'violations'),
                         ((c['promise'], f"{c['checked']:,}", c['violations']) for c in chaos['promises']))
        yield ''

    def bug_lines(self):
        yield '## Planted bugs'
        yield ''
        yield paragraph(f'''{sum(b['verdict'] == 'caught' for b in self.bugs.values())} of {len(self.bugs)} were caught.
            Each is a patch of `test/mutants`, planted alone. The test is the first of those that the patch names which
            failed; the seconds are those of the tests until then.''')
        yield ''
        yield from table(('bug', 'caught by', 'seconds'), self.bug_rows())
        yield ''

    def crash_lines(self):
        yield '## Crash points'
        yield ''
        points = {row['point'] for row in self.crashes}
        failed = sum(row['verdict'] != 'ok' for row in self.crashes)
        yield paragraph(f'''The server was killed at {len(points)} points of the extension's code, {len(self.crashes)}
            times in all: at each point in each scenario that passes it. After {failed} of these the scenario did not
            end as it would have without the crash.''')
        yield ''

    def truth_lines(self):
        yield '## Outcomes against the truth'
        yield ''
        yield paragraph('''All orders of what services, operators and time can do to a saga, with the engine's own code
            ([what is explored and judged](../test/truth/README.md)). A saga is cut where it has more states than are
            kept.''')
        yield ''
        columns = ('sagas', 'states', 'cut', 'parks', 'swapped', 'violations')
        yield from table(('suite', 'sagas', 'states', 'sagas cut', 'ways out of a park', 'answers swapped', 'violations'),
                         ((r['suite'], *(f'{int(r[c]):,}' for c in columns)) for r in self.suites))
        yield ''

    def load_lines(self):
        yield '## Load'
        yield ''
        failed = [row for row in self.points if row['verdict'] == 'failed']
        yield paragraph(f'''{len(self.points)} points of load: calls, clients, rows waiting, statistics, with a worker
            beside them and a snapshot held ([all rates](../test/proof/runs/sweep.tsv), [what is
            measured](../test/sweep/README.md)). {len(failed)} of them fell below the limit against a neighbour with
            fewer clients or rows{':' if failed else '.'}''')
        if failed:
            yield ''
            yield from table(('call', 'statistics', 'worker', 'snapshot', 'rows', 'clients', 'of fewer clients',
                              'of fewer rows'),
                             ((r['call'], r['statistics'], r['worker'], r['snapshot'], r['rows'], r['clients'],
                               r['of_fewer_clients'], r['of_fewer_rows']) for r in failed))
        yield ''


def main():
    proof = Proof(pathlib.Path(sys.argv[-1]))
    faults = list(proof.faults())
    for fault in faults:
        print(f'proof: {fault}', file=sys.stderr)
    if faults:
        sys.exit(1)
    if sys.argv[1] != '--check':
        print('\n'.join(proof.lines()))


main()
