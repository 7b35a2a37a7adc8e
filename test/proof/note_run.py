"""note_run.py FILE RUN COMMAND COMMIT SERVER: writes into FILE, a JSON object by run, what RUN was made with."""

import datetime
import json
import os
import pathlib
import sys

path, run, command, commit, server = pathlib.Path(sys.argv[1]), *sys.argv[2:]
runs = json.loads(path.read_text()) if path.exists() else {}
gigabytes = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30
runs[run] = {'command': command, 'commit': commit, 'date': datetime.date.today().isoformat(),
             'machine': f'{os.cpu_count()} cores, {gigabytes:.0f} GB, {server}'}
path.write_text(json.dumps(runs, indent=1, sort_keys=True) + '\n')
