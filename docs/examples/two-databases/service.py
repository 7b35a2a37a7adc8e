# Does the steps of the queue "bank_b" of bank A in the database of bank B.
# Wants two connection strings: BANK_A, BANK_B.
import os, signal, time
import psycopg
from psycopg.types.json import Jsonb

CLAIM = """SELECT saga_id, step, lease, direction, idempotency_key, input
             FROM stacksaga.claim_steps('bank_b', %s, 10, %s::interval)"""
COMPLETE = 'SELECT stacksaga.complete_step(%s, %s, %s, %s)'
FAIL = 'SELECT stacksaga.fail_step(%s, %s, %s, %s, %s)'
WAIT = "CALL stacksaga.wait_for_steps('bank_b', '1 second')"
# The marker in B. It has to outlive every attempt of A: see README.md.
BEGIN = """SELECT outcome = 'replay', response, lease FROM stacksaga.idempotency_begin(
               'bank_a', %s, %s, retention => '1 year', on_locked => 'wait')"""
FINISH = "SELECT stacksaga.idempotency_finish('bank_a', %s, %s, %s)"
worker = f'bank-b-{os.getpid()}'
lease = os.environ.get('LEASE', '30 seconds')

def book(b, key, order, amount):
    """Changes the balance; false where there is no such account."""
    found = b.execute('UPDATE account SET balance = balance + %s WHERE id = %s', (amount, order['to'])).rowcount
    if found:
        b.execute('INSERT INTO entry VALUES (%s, %s, %s)', (key, order['to'], amount))
    return bool(found)

def credit(b, key, order):
    """Credits the account, unless its marker says what became of that."""
    done, response, held = b.execute(BEGIN, (key, Jsonb(order))).fetchone()
    if not done:
        response = {'credited': book(b, key, order, order['amount'])}
        b.execute(FINISH, (key, held, Jsonb(response)))
    return response

def take_back(b, key, order):
    """Undoes the credit. One that has not come yet finds its marker taken, and credits nothing."""
    done, response, held = b.execute(BEGIN, (key, Jsonb(order))).fetchone()
    if done:
        return response
    act = key.replace(':compensate', ':act')
    came, credited, act_held = b.execute(BEGIN, (act, Jsonb(order))).fetchone()
    if not came:
        credited = {'credited': False}
        b.execute(FINISH, (act, act_held, Jsonb(credited)))
    response = {'taken_back': credited['credited'] and book(b, key, order, -order['amount'])}
    b.execute(FINISH, (key, held, Jsonb(response)))
    return response

def do(a, b, step):
    """Effect and marker in one transaction of B; then the answer to A."""
    saga_id, name, held, direction, key, order = step
    try:
        response = (credit if direction == 'act' else take_back)(b, key, order)
        b.commit()
    except psycopg.OperationalError:
        raise  # B is lost, and perhaps an answer of its COMMIT: the step is offered again
    except psycopg.Error as error:
        b.rollback()
        a.execute(FAIL, (saga_id, name, held, str(error), 'retryable'))
        return
    if response.get('credited') is False:
        a.execute(FAIL, (saga_id, name, held, 'bank B has no such account', 'non_retryable'))
    else:
        a.execute(COMPLETE, (saga_id, name, held, Jsonb(response)))

def turn(a, b):
    steps = a.execute(CLAIM, (worker, lease)).fetchall()  # autocommit: a lease, and no transaction held
    for step in steps:
        try:
            do(a, b, step)
        except psycopg.DatabaseError as error:
            if error.sqlstate != 'SG412':  # the lease ran out, and somebody else has the step
                raise
    return len(steps)

def serve(connect, is_over):
    while not is_over():
        try:
            with connect(os.environ['BANK_A'], autocommit=True) as a, connect(os.environ['BANK_B']) as b:
                while not is_over():
                    if turn(a, b) == 0:
                        a.execute(WAIT)
        except psycopg.OperationalError as error:  # either server is away
            print(error, flush=True)
            time.sleep(0.2)

if __name__ == '__main__':
    ends = []
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    serve(psycopg.connect, lambda: bool(ends))
