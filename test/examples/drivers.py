"""Runs docs/drivers.md: the program of each driver, against a database of its own, must print what the page shows.
Of docs/service-loop.md it runs the turn of each driver.

Run by test/tools/examples inside a private PostgreSQL server. A driver that is not installed is skipped, and said to be.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tcp_to_server import serve_by_tcp
from through_pgbouncer import PgBouncer, needs_pgbouncer

TOP = pathlib.Path(__file__).parents[2]
PAGE = (TOP / 'docs' / 'drivers.md').read_text()
LOOP = (TOP / 'docs' / 'service-loop.md').read_text()
JDBC = pathlib.Path('/usr/share/java/postgresql.jar')
GOPATH = pathlib.Path(os.environ.get('GOPATH', '/usr/share/gocode'))
PGX = GOPATH / 'src/github.com/jackc/pgx'

JAVASCRIPT = '(async () => {\n%s\n})();'
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
const { Client } = require('pg'), client = new Client(), sql = require('postgres')({ prepare: false });
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
JAVA_LOOP = """
import java.sql.*;
import java.util.*;

public class Loop {
    public static void main(String[] arguments) throws Exception {
        Connection db = DriverManager.getConnection(System.getenv("JDBC_URL"));
        String worker = "till-1";
        String[] types = {"uuid", "text", "bigint", "text"};
        List<List<Object>> columns = List.of(new ArrayList<>(), new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
        for (int round = 0; round < 2; round++) {
            Array[] done = new Array[4];
            for (int i = 0; i < 4; i++) done[i] = db.createArrayOf(types[i], columns.get(i).toArray());
            columns.forEach(List::clear);
%(turn)s
            while (claims.next()) {
                for (int i = 0; i < 3; i++) columns.get(i).add(claims.getObject(i + 1));
                columns.get(3).add("1");
            }
            System.out.println(columns.get(0).size());
        }
    }
}
"""
GO_LOOP = """
package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v4"
)

type step struct {
	id, name, direction, key, input string
	lease                int64
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx, worker := context.Background(), "till-1"
	conn, err := pgx.Connect(ctx, "")
	check(err)
	ids, steps, leases, outputs := []string{}, []string{}, []int64{}, []string{}
	for round := 0; round < 2; round++ {
%(turn)s
		check(err)
		ids, steps, leases, outputs = ids[:0], steps[:0], leases[:0], outputs[:0]
		for _, one := range claimed {
			ids, steps, leases = append(ids, one.id), append(steps, one.name), append(leases, one.lease)
			outputs = append(outputs, "1")
		}
		fmt.Println(len(claimed))
	}
}
"""
C_LOOP = """
#include <libpq-fe.h>
#include <stdio.h>

#define COMPLETE %(complete)s
#define CLAIM %(claim)s

int main(void)
{
    PGconn *db = PQconnectdb("");
    char columns[4][100] = {"{}", "{}", "{}", "{}"};
    const char *done[] = {columns[0], columns[1], columns[2], columns[3]}, *worker[] = {"till-1"};
    PQenterPipelineMode(db);
    for (int round = 0; round < 2; round++)
    {
%(turn)s
        if (PQresultStatus(answers) != PGRES_TUPLES_OK || PQresultStatus(claims) != PGRES_TUPLES_OK)
            fprintf(stderr, "%%s", PQerrorMessage(db));
        for (int i = 0; i < 3 && PQntuples(claims) > 0; i++)
            snprintf(columns[i], 100, "{%%s}", PQgetvalue(claims, 0, i));
        snprintf(columns[3], 100, "{1}");
        printf("%%d\\n", PQntuples(claims));
        PQclear(answers);
        PQclear(claims);
    }
    PQfinish(db);
    return 0;
}
"""


def has_module(name):
    return subprocess.run(('/usr/bin/python3', '-c', f'import {name}'), capture_output=True).returncode == 0


needs_node = unittest.skipUnless(shutil.which('npm'), 'needs nodejs and npm')
needs_java = unittest.skipUnless(shutil.which('javac') and JDBC.exists(), 'needs javac and libpostgresql-jdbc-java')
needs_go = unittest.skipUnless(shutil.which('go') and PGX.exists(), 'needs golang-go and golang-github-jackc-pgx-v4-dev')


class Drivers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.database = f'{type(self).__name__}_{self._testMethodName}'.lower()
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
        self.assertEqual(self.run_python(path), shown)

    @unittest.skipUnless(has_module('psycopg2'), 'needs python3-psycopg2')
    def test_psycopg2(self):
        path, shown = self.program_of('psycopg2', 'page.py')
        self.assertEqual(self.run_python(path), shown)

    @needs_node
    def test_node_pg(self):
        path, shown = self.program_of('node-pg', 'page.js', JAVASCRIPT)
        self.assertEqual(self.run_javascript(path), shown)

    @needs_node
    def test_postgres_js(self):
        path, shown = self.program_of('postgres.js', 'page.js', JAVASCRIPT)
        self.assertEqual(self.run_javascript(path), shown)

    @needs_java
    def test_jdbc(self):
        path, shown = self.program_of('JDBC', 'Page.java', JAVA)
        self.assertEqual(self.run_java(path), shown)

    @needs_go
    def test_pgx(self):
        path, shown = self.program_of('pgx', 'page.go', GO)
        self.assertEqual(self.run_go(path), shown)

    def test_libpq(self):
        path, shown = self.program_of('libpq', 'page.c', C)
        self.assertEqual(self.run_c(path), shown)

    def run_python(self, path):
        return self.run_command('/usr/bin/python3', path)

    def run_javascript(self, path):
        return self.run_command('node', path, NODE_PATH=str(TOP / 'test' / 'examples' / 'node_modules'))

    def run_java(self, path):
        url = f"jdbc:postgresql://127.0.0.1:{serve_by_tcp(self.environment)}/{self.database}?user={os.environ['PGUSER']}"
        return self.run_command('java', '-cp', str(JDBC), path, JDBC_URL=url)

    def run_go(self, path):
        return self.run_command('go', 'run', path, GO111MODULE='off', GOPATH=str(GOPATH), GOFLAGS='',
                                GOCACHE=str(TOP / 'tmp_check' / 'go'))

    def run_c(self, path):
        include = self.run_command('pg_config', '--includedir').strip()
        self.run_command('cc', '-Wall', '-Werror', f'-I{include}', '-o', self.folder / 'page', path, '-lpq')
        return self.run_command(self.folder / 'page')

    def assert_loop(self, driver, frame, file, run, **statements):
        """Runs two turns of the service's loop that docs/service-loop.md shows for the driver."""
        self.run_command('psql', '-qXc', "SELECT stacksaga.start_saga('pay')")
        (turn,) = re.findall(rf'\*\*{re.escape(driver)}\.\*\*.*?```\w+\n(.*?)```', LOOP, re.S)[:1]
        turn = turn.replace("wait_for_steps('payments')", "wait_for_steps('payments', '10 ms')")
        self.assertIn('10 ms', turn)
        indent = re.search(r'^( *).*\n%\(turn\)s', frame, re.M).group(1) + '    '
        path = self.folder / file
        path.write_text(frame % {'turn': re.sub('^', indent, turn, flags=re.M), **statements})
        self.assertEqual(run(path).split(), ['1', '0'])
        status = self.run_command('psql', '-qXAtc', 'SELECT status FROM stacksaga.sagas')
        self.assertEqual(status.strip(), 'completed')

    def statements_of_the_loop(self, parameter):
        """COMPLETE and CLAIM, with each parameter as the driver writes it."""
        (block,) = re.findall(r'```postgresql\n(.*?)```', LOOP, re.S)[-1:]
        return [re.sub(r'\$(\d)', lambda found: parameter(int(found[1])), line) for line in block.splitlines()]

    def numbered_statements(self):
        return self.statements_of_the_loop(lambda number: f'${1 if number == 5 else number}')

    @unittest.skipUnless(has_module('psycopg'), 'needs python3-psycopg')
    def test_loop_of_psycopg3(self):
        self.assert_loop('psycopg 3', PSYCOPG3_LOOP, 'loop.py', self.run_python,
                         statements=self.statements_of_the_loop(lambda _: '%s'))

    @unittest.skipUnless(has_module('psycopg2'), 'needs python3-psycopg2')
    def test_loop_of_psycopg2(self):
        self.assert_loop('psycopg2', PSYCOPG2_LOOP, 'loop.py', self.run_python)

    @needs_node
    def test_loop_of_node_pg(self):
        self.assert_loop('node-pg', JAVASCRIPT_LOOP, 'loop.js', self.run_javascript, statements=self.numbered_statements())

    @needs_node
    def test_loop_of_postgres_js(self):
        self.assert_loop('postgres.js', JAVASCRIPT_LOOP, 'loop.js', self.run_javascript, statements=self.numbered_statements())

    @needs_java
    def test_loop_of_jdbc(self):
        self.assert_loop('JDBC', JAVA_LOOP, 'Loop.java', self.run_java)

    @needs_go
    def test_loop_of_pgx(self):
        self.assert_loop('pgx', GO_LOOP, 'loop.go', self.run_go)

    def test_loop_of_libpq(self):
        complete, claim = map(json.dumps, self.numbered_statements())
        self.assert_loop('libpq', C_LOOP, 'loop.c', self.run_c, complete=complete, claim=claim)


@needs_pgbouncer
class DriversThroughPgBouncer(Drivers):
    """The same without named statements, which the other programs do not have."""

    @classmethod
    def setUpClass(cls):
        cls.pooler = PgBouncer()
        cls.addClassCleanup(cls.pooler.stop)

    def setUp(self):
        super().setUp()
        self.environment |= self.pooler.address

    def run_go(self, path):
        page = path.read_text()
        self.assertIn('(ctx, "")', page)
        path.write_text(page.replace('(ctx, "")', '(ctx, "prefer_simple_protocol=true")'))
        return super().run_go(path)


if __name__ == '__main__':
    unittest.main(verbosity=2)
