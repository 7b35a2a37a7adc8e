"""Scripts of pgbench, run by many clients at once."""

import re
import subprocess
import sys
import tempfile

import measure

# The first second of a round opens sessions, which plan and load what they need: it is not counted.
WARM = 1


def pgbench(db, script, clients, extent, seed):
    """Runs a script of pgbench; returns how many transactions it did, and how many a second after the first one."""
    with tempfile.NamedTemporaryFile('w', suffix='.sql') as file:
        file.write(script)
        file.flush()
        done = subprocess.run(
            [measure.PGBENCH, '-n', '-M', 'prepared', '-c', str(clients), '-j', str(min(clients, 2)), '-P', '1',
             '--random-seed', str(seed), *extent, '-f', file.name, db.name], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f'pgbench failed in {db.name}:\n{done.stdout}{done.stderr}')
    count = int(re.search(r'actually processed: (\d+)', done.stdout)[1])
    if count == 0:
        return 0, 0.0
    seconds = count / float(re.search(r'tps = ([\d.]+) \(without', done.stdout)[1])
    begun, early = map(float, re.search(r'progress: ([\d.]+) s, ([\d.]+) tps', done.stderr).groups()) \
        if '-T' in extent else (0, 0)
    return count, (count - begun * early) / (seconds - begun)
