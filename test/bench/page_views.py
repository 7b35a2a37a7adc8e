"""How long the daemon takes to answer each view of its page, with a million sagas or SAGAS=n.

One in ten of them lives: it waits in a queue, or it is parked. Beside them are dead messages, blocked keys and actions of
operators. The tables are filled by direct INSERTs; each view is asked for when the daemon keeps no answer to it any more."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.parse

import measure
from find_sagas import FILL_ATTRIBUTES, DEFINE as DEFINE_SAGAS

DAEMON = pathlib.Path(__file__).parents[2] / 'build' / 'coordinator' / 'stacksaga-coordinator'
AT_MOST = 100
KEEPS = 1.1   # seconds, for which the daemon keeps an answer, and a little more
PART = 250_000

DEFINE = """
    CREATE FUNCTION bill(stacksaga.message) RETURNS void LANGUAGE sql AS '';
    SELECT stacksaga.create_subscription('billing', 'orders', 'bill(stacksaga.message)', start_at => 'earliest');
    SELECT stacksaga.create_subscription('audit', 'orders', start_at => 'earliest');
    SELECT stacksaga.create_schedule('nightly ' || n, 'order', '0 3 * * *') FROM generate_series(1, 100) AS n;
"""

# Sagas by their number: a hundred thousand of a million live, five thousand are parked.
FILL = """
    INSERT INTO stacksaga.saga (saga_id, token, ring_id, slot, definition_id, status, direction, parked_step, parked_direction,
            created_at, updated_at, finished_at, key, fingerprint, input, headers, attributes)
    SELECT id, stacksaga.token_uuid(id), 1, stacksaga.slot(stacksaga.token_uuid(id)), 1 + n / 10 %% 10, status,
           CASE WHEN status = 'failed' THEN 'compensate' ELSE 'act' END, CASE status WHEN 'parked' THEN 1 END,
           CASE status WHEN 'parked' THEN 'act' END, at, at, CASE WHEN status IN ('completed', 'failed') THEN at END,
           'order-' || n, '', '{"amount": 20}', '{}', CASE WHEN n %% 5 = 0 THEN jsonb_build_object(
               'customer', n / 5 * 6007 %% 10000, 'country', (ARRAY['de', 'fr', 'it'])[1 + n / 5 %% 3]) END
      FROM generate_series(%s::bigint, %s::bigint) AS n,
           LATERAL (SELECT stacksaga.saga_id_of('order', 'key ' || n) AS id, now() - interval '1 hour' + n * interval '1 ms' AS at,
                           CASE WHEN n %% 10 = 0 THEN 'running' WHEN n %% 200 = 1 THEN 'parked' WHEN n %% 100 = 2 THEN 'failed'
                                ELSE 'completed' END AS status) AS v
"""
FILL_REST = """
    INSERT INTO stacksaga.work (saga_id, token, ring_id, slot, purpose, step_no, direction, due_at, queue)
    SELECT saga_id, s.token, 1, s.slot, 'step', 1, 'act', s.created_at, d.queue
      FROM stacksaga.saga s JOIN stacksaga.definition_step d USING (definition_id) WHERE status = 'running';
    INSERT INTO stacksaga.parked_saga SELECT saga_id, token, updated_at FROM stacksaga.saga WHERE status = 'parked' ON CONFLICT DO NOTHING;
    INSERT INTO stacksaga.effect (saga_id, step_no, direction, token, attempt, started_at, completed_at, output)
    SELECT saga_id, 1, 'act', token, 1, created_at, created_at, '{"receipt": 17}' FROM stacksaga.saga WHERE status = 'completed';
    INSERT INTO stacksaga.failure (saga_id, step_no, direction, attempt, token, error_class, outcome_known, started_at, finished_at, sqlstate, error)
    SELECT saga_id, 1, 'act', attempt, token, 'retryable', true, created_at, created_at, '40001', 'the bank does not answer, attempt ' || attempt
      FROM stacksaga.saga, generate_series(1, 3) AS attempt WHERE status IN ('parked', 'failed');
    INSERT INTO stacksaga.saga_action (saga_id, action_no, token, action, role, acted_at, status_before, status_after, reason)
    SELECT saga_id, 1, token, 'retry', 'postgres', created_at, 'parked', 'running', 'once more'
      FROM stacksaga.saga WHERE status IN ('running', 'parked');
    INSERT INTO stacksaga.operator_action SELECT now() - n * interval '1 s', 'postgres', NULL, 'redrive', 'subscription billing', 'again'
      FROM generate_series(1, %(actions)s) AS n;
    INSERT INTO stacksaga.dead_message (subscription_id, token, number, tick, partition, attempts, since, dead_since, published_at,
            message_id, topic, key, payload, headers, last_error)
    SELECT 1, stacksaga.token(v.key), n, 1, 0, 3, now(), now() - n * interval '1 ms', now(), gen_random_uuid(), 'orders', v.key,
           '{"amount": 20}', '{}', 'no such customer'
      FROM generate_series(1, %(dead)s) AS n, LATERAL (SELECT 'customer ' || n / 2) AS v(key);
    SELECT count(stacksaga.publish('orders', '{"amount": 20}', 'customer ' || n)) FROM generate_series(1, %(dead)s) AS n;
    VACUUM ANALYZE;
"""


@contextlib.contextmanager
def daemon(db):
    """A daemon on a free port: yields the connection to it."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile('r', suffix='.log') as log:
        process = subprocess.Popen([DAEMON, 'master', '-d', db.name, '--http', f'127.0.0.1:{port}'],
                                   stderr=open(log.name, 'w'), stdin=subprocess.DEVNULL)
        try:
            measure.wait_until(lambda: 'msg=listening' in pathlib.Path(log.name).read_text(), 'the daemon listens',
                               patience=60, pause=0.1)
            yield http.client.HTTPConnection('127.0.0.1', port, timeout=60)
        finally:
            process.terminate()
            process.wait()


class Views(measure.Figures):
    """A row for each view: half of the answers and 19 of 20 of them took so many milliseconds at most, and half of
    them so much CPU time of the server's processes, which says more where the machine does other work."""

    def view(self, what, times, cpu):
        half, most = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        self.rows.append((what, *(f'{measure.digits(v)} ms' for v in (half, most, statistics.median(cpu))),
                          'yes' if half <= AT_MOST else 'no'))
        print(*self.rows[-1], sep='  ', flush=True)

    def table(self):
        lines = [('view', 'half of the answers', '19 of 20', 'CPU', f'half within {AT_MOST} ms'), ('---',) * 5, *self.rows]
        text = '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)
        return f'{text}\n\n{self.extent}; PostgreSQL {measure.server_major()}, {os.cpu_count()} cores.\n'


def used_cpu(pids):
    """The CPU time of processes of one thread, in milliseconds."""
    return sum(int(pathlib.Path(f'/proc/{pid}/schedstat').read_text().split()[0]) / 1e6 for pid in pids)


def answer(connection, path):
    """The answer to one request, and milliseconds until it was there."""
    begun = time.monotonic()
    connection.request('GET', path)
    response = connection.getresponse()
    body = response.read()
    took = 1000 * (time.monotonic() - begun)
    if response.status != 200:
        raise SystemExit(f'{path}: {response.status} {body.decode()[:500]}')
    return body, took


def views(connection, size):
    """What people look at: a name and an address of each view."""
    def sagas(**filters):
        return '/api/sagas?' + urllib.parse.urlencode(filters)
    newest = json.loads(answer(connection, sagas())[0])['sagas']
    parked = json.loads(answer(connection, sagas(status='parked'))[0])['sagas'][0]['saga_id']
    dead = json.loads(answer(connection, '/api/dead-messages')[0])['dead_messages']
    after = urllib.parse.urlencode({'created_before': newest[49]['created_at'], 'before_saga_id': newest[49]['saga_id']})
    return {
        'problems and rings, `/status`': '/status',
        'the newest sagas': sagas(), 'the next page': f'/api/sagas?{after}', 'by status': sagas(status='parked'),
        'by name': sagas(saga='order'), 'by name and status': sagas(saga='order', status='failed'),
        'by the beginning of their keys': sagas(key='order-7'), 'by an old time': sagas(created_before='2000-01-01'),
        'search by a whole key': f'/api/sagas-of-key?key=order-{size // 10}',
        'a parked saga': f'/api/saga?id={parked}', 'a running saga': f'/api/saga?id={newest[0]["saga_id"]}',
        'queues': '/api/queues', 'charts': '/api/history', 'blocked keys': '/api/blocked-keys',
        'dead messages': '/api/dead-messages', 'dead messages of a subscription': '/api/dead-messages?subscription=billing',
        'a dead message': '/api/message?' + urllib.parse.urlencode({'subscription': 'billing', 'id': dead[0]['message_id']}),
        'schedules': '/api/schedules', 'definitions': '/api/definitions', 'a definition': '/api/definition?saga=order',
        'what operators did': '/api/operator-actions', '`/metrics`': '/metrics'}


def run(bench):
    size = int(os.environ.get('SAGAS', 20_000 if bench.quick else 1_000_000))
    db = bench.database()
    db.sql(DEFINE_SAGAS)
    db.sql(DEFINE)
    for part in range(1, size + 1, PART):
        db.sql(FILL, part, min(size, part + PART - 1))
    db.sql(FILL_ATTRIBUTES)
    for statement in FILL_REST.split(';\n'):
        if statement.strip():
            db.session.execute(statement, {'actions': size // 10, 'dead': size // 50} if '%(' in statement else None)
    db.sql('SELECT stacksaga_internal.count_sagas()')
    rounds = max(20, bench.rounds)
    with daemon(db) as connection:
        asked = views(connection, size)
        for path in asked.values():  # the first answers open sessions
            answer(connection, path)
        sessions = [row[0] for row in db.session.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            "   AND backend_type = 'client backend'")]
        times, cpu = ({what: [] for what in asked} for _ in range(2))
        for _ in range(rounds):
            time.sleep(KEEPS)
            for what, path in asked.items():
                before = used_cpu(sessions)
                times[what].append(answer(connection, path)[1])
                cpu[what].append(used_cpu(sessions) - before)
    for what, took in times.items():
        bench.view(what, took, cpu[what])
    bench.extent = f'{rounds} answers each, of {size:,} sagas'


if __name__ == '__main__':
    measure.main(run, Views)
