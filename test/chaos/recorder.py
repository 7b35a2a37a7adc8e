"""The recorder: every call of a client and its answer, as JSON lines that outlive the client.

A call is written before it is made, its answer after it has come; both are in the kernel's hands before
the client goes on, so that a killed client leaves a call without an answer, whose outcome is unknown.
Instants are of CLOCK_MONOTONIC, which all processes of a machine share.
"""

import json
import pathlib
import time


class Recorder:
    """Writes the history of one process."""

    def __init__(self, folder, process):
        self.process = process
        self.file = open(pathlib.Path(folder) / f'{process}.jsonl', 'a', encoding='utf-8')
        self.calls = 0

    def write(self, line):
        self.file.write(json.dumps(line, default=str) + '\n')
        self.file.flush()

    def call(self, op, args):
        """Notes that a call begins, and returns its number."""
        self.calls += 1
        self.write({'call': self.calls, 'op': op, 'args': args, 'at': time.monotonic_ns()})
        return self.calls

    def answer(self, call, outcome, value=None, sqlstate=None):
        """Notes what came of it: ok, error (it did not commit), or unknown."""
        self.write({'answer': call, 'outcome': outcome, 'value': value, 'sqlstate': sqlstate,
                    'at': time.monotonic_ns()})


def read_history(folder):
    """All calls of a recorded folder as dicts: process, call, op, args, begin, end, outcome, value, sqlstate.

    A call without an answer is unknown and never ends.
    """
    calls = []
    for path in sorted(pathlib.Path(folder).glob('*.jsonl')):
        mine = {}
        for text in path.read_text(encoding='utf-8').splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue    # the last line of a killed process
            if 'call' in line:
                mine[line['call']] = {
                    'process': path.stem, 'call': line['call'], 'op': line['op'], 'args': line['args'],
                    'begin': line['at'], 'end': None, 'outcome': 'unknown', 'value': None, 'sqlstate': None}
            else:
                mine[line['answer']].update(end=line['at'], outcome=line['outcome'], value=line['value'],
                                            sqlstate=line['sqlstate'])
        calls.extend(mine.values())
    return sorted(calls, key=lambda call: call['begin'])


def doubt_lost(calls, faults):
    """Makes unknown what a failover may have lost: calls under way or answered while the standby got nothing.

    They keep their answers, so that what they handed out is still known. `faults` is the path of the lines of
    World.note; it need not exist.
    """
    lines = faults.read_text(encoding='utf-8').splitlines() if faults.exists() else ()
    spans = [(line['begin'], line['end']) for line in map(json.loads, lines) if line.get('lost')]
    for call in calls:
        if any(call['begin'] <= end and (call['end'] is None or call['end'] >= begin) for begin, end in spans):
            call['outcome'] = 'unknown'
    return calls
