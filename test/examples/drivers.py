"""Runs docs/drivers.md: the program of each driver, against a database of its own, must print what the page shows.
Of docs/service-loop.md it runs the turns for Python and JavaScript.

Run by test/tools/examples inside a private PostgreSQL server. A driver that is not installed is skipped, and said to be.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tcp_to_server import serve_by_tcp

TOP = pathlib.Path(__file__).parents[2]
PAGE = (TOP / 'docs' / 'drivers.md').read_text()
LOOP = (TOP / 'docs' / 'service-loop.md').read_text()
JDBC = pathlib.Path('/usr/share/java/postgresql.jar')
GOPATH = pathlib.Path(os.environ.get('GOPATH', '/usr/share/gocode'))
PGX = GOPATH / 'src/github.com/jackc/pgx'

JAVA = """
import java.sql.*;
import java.util.*;
import org.postgresql.util.*;

public class Page {
    public static void main(String[] arguments) throws Exception {
%s
    }
}
"""
GO = """
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
%s
}
"""
C = """
#include <libpq-fe.h>
#include <stdio.h>

int main(void)
{
%s
}
"""

# Around a turn of docs/service-loop.md: the first turn finds the step, the second answers for it and waits.
PSYCOPG3_LOOP = """
import psycopg
from psycopg.types.json import Jsonb
COMPLETE, CLAIM = %(statements)r
db, worker, done = psycopg.connect(autocommit=True), 'till-1', []
for turn in range(2):
%(turn)s
    done = [(*step[:3], Jsonb(1)) for step in steps]
    print(len(steps))
"""
PSYCOPG2_LOOP = """
import psycopg2, psycopg2.extras
psycopg2.extras.register_uuid()
db, worker, columns = psycopg2.connect(''), 'till-1', [[], [], [], []]
db.autocommit = True
cursor = db.cursor()
for turn in range(2):
%(turn)s
    columns = [[step[i] for step in steps] for i in range(3)] + [[psycopg2.extras.Json(1) for _ in steps]]
    print(len(steps))
"""
JAVASCRIPT_LOOP = """
const { Client } = require('pg'), client = new Client(), sql = require('postgres')();
const [COMPLETE, CLAIM] = %(statements)s, worker = 'till-1';
let ids = [], steps = [], leases = [], outputs = [];
(async () => {
    await client.connect();
    for (let turn = 0; turn < 2; turn++) {
%(turn)s
        ids = claimed.map((row) => row.saga_id);
        steps = claimed.map((row) => row.step);
        leases = claimed.map((row) => row.lease);
        outputs = claimed.map(() => 1);
        console.log(claimed.length);
    }
    await client.end();
    await sql.end();
})();
"""


def has_module(name):
    return subprocess.run(('/usr/bin/python3', '-c', f'import {name}'), capture_output=True).returncode == 0


class Drivers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.database = f'page_{self._testMethodName}'
        subprocess.run(('createdb', self.database), check=True)
        self.environment = {**os.environ, 'PGDATABASE': self.database}
        (setup,) = re.findall(r'<!-- sql\n(.*?)-->', PAGE, re.S)
        self.run_command('psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-o', os.devnull, '-c', setup)

    def run_command(self, *command, **more):
        ran = subprocess.run(command, env={**self.environment, **more}, text=True, capture_output=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def program_of(self, driver, file, frame='%s'):
        """Writes the program below the driver's heading into a file, and returns that and what it shall print."""
        section = re.search(rf'^## {re.escape(driver)}\n(.*?)(?=^## |\Z)', PAGE, re.S | re.M).group(1)
        (program, shown), = re.findall(r'```(?!text)\w+\n(.*?)```\n```text\n(.*?)```', section, re.S)
        path = self.folder / file
        path.write_text(frame.replace('%s', program))
        return path, shown

    @unittest.skipUnless(has_module('psycopg'), 'needs python3-psycopg')
    def test_psycopg3(self):
        path, shown = self.program_of('psycopg 3', 'page.py')
        self.assertEqual(self.run_command('/usr/bin/python3', path), shown)

    @unittest.skipUnless(has_module('psycopg2'), 'needs python3-psycopg2')
    def test_psycopg2(self):
        path, shown = self.program_of('psycopg2', 'page.py')
        self.assertEqual(self.run_command('/usr/bin/python3', path), shown)

    def run_javascript(self, driver):
        path, shown = self.program_of(driver, 'page.js', '(async () => {\n%s\n})();')
        modules = TOP / 'test' / 'examples' / 'node_modules'
        self.assertEqual(self.run_command('node', path, NODE_PATH=str(modules)), shown)

    def test_node_pg(self):
        self.run_javascript('node-pg')

    def test_postgres_js(self):
        self.run_javascript('postgres.js')

    @unittest.skipUnless(shutil.which('javac') and JDBC.exists(), 'needs javac and libpostgresql-jdbc-java')
    def test_jdbc(self):
        path, shown = self.program_of('JDBC', 'Page.java', JAVA)
        url = f"jdbc:postgresql://127.0.0.1:{serve_by_tcp()}/{self.database}?user={os.environ['PGUSER']}"
        self.assertEqual(self.run_command('java', '-cp', str(JDBC), path, JDBC_URL=url), shown)

    @unittest.skipUnless(shutil.which('go') and PGX.exists(), 'needs golang-go and golang-github-jackc-pgx-v4-dev')
    def test_pgx(self):
        path, shown = self.program_of('pgx', 'page.go', GO)
        self.assertEqual(self.run_command('go', 'run', path, GO111MODULE='off', GOPATH=str(GOPATH),
                                          GOFLAGS='', GOCACHE=str(TOP / 'tmp_check' / 'go')), shown)

    def test_libpq(self):
        path, shown = self.program_of('libpq', 'page.c', C)
        include = self.run_command('pg_config', '--includedir').strip()
        self.run_command('cc', '-Wall', '-Werror', f'-I{include}', '-o', self.folder / 'page', path, '-lpq')
        self.assertEqual(self.run_command(self.folder / 'page'), shown)

    def run_loop(self, driver, frame, file, program, statements=None, indent='    ', **more):
        """Runs two turns of the service's loop that docs/service-loop.md shows for the driver."""
        self.run_command('psql', '-qXc', "SELECT stacksaga.start_saga('pay')")
        (turn,) = re.findall(rf'\*\*{re.escape(driver)}\.\*\*.*?```\w+\n(.*?)```', LOOP, re.S)[:1]
        turn = turn.replace("wait_for_steps('payments')", "wait_for_steps('payments', '10 ms')")
        self.assertIn('10 ms', turn)
        path = self.folder / file
        path.write_text(frame % {'turn': re.sub('^', indent, turn, flags=re.M), 'statements': statements})
        self.assertEqual(self.run_command(program, path, **more).split(), ['1', '0'])
        status = self.run_command('psql', '-qXAtc', 'SELECT status FROM stacksaga.sagas')
        self.assertEqual(status.strip(), 'completed')

    def statements_of_the_loop(self, parameter):
        """COMPLETE and CLAIM, with each parameter as the driver writes it."""
        (block,) = re.findall(r'```postgresql\n(.*?)```', LOOP, re.S)[-1:]
        return [re.sub(r'\$(\d)', lambda found: parameter(int(found[1])), line) for line in block.splitlines()]

    @unittest.skipUnless(has_module('psycopg'), 'needs python3-psycopg')
    def test_loop_of_psycopg3(self):
        self.run_loop('psycopg 3', PSYCOPG3_LOOP, 'loop.py', '/usr/bin/python3',
                      self.statements_of_the_loop(lambda _: '%s'))

    @unittest.skipUnless(has_module('psycopg2'), 'needs python3-psycopg2')
    def test_loop_of_psycopg2(self):
        self.run_loop('psycopg2', PSYCOPG2_LOOP, 'loop.py', '/usr/bin/python3')

    def run_javascript_loop(self, driver):
        statements = self.statements_of_the_loop(lambda number: f'${1 if number == 5 else number}')
        modules = TOP / 'test' / 'examples' / 'node_modules'
        self.run_loop(driver, JAVASCRIPT_LOOP, 'loop.js', 'node', statements, ' ' * 8, NODE_PATH=str(modules))

    def test_loop_of_node_pg(self):
        self.run_javascript_loop('node-pg')

    def test_loop_of_postgres_js(self):
        self.run_javascript_loop('postgres.js')


if __name__ == '__main__':
    unittest.main(verbosity=2)
