# `example.py work` does the steps of the queue "payments", `example.py consume` books messages in a ledger.
# Wants libpq's variables (PGHOST, ...).
import os, sys
from psycopg.types.json import Jsonb
from stacksaga import Client

def charge(db, step):
    arguments = step['idempotency_key'], step['direction'], Jsonb(step['input'])
    return db.execute('SELECT charge(%s, %s, %s)', arguments).fetchone()['charge']

def book(db, message):
    insert = 'INSERT INTO ledger (message_id, key, payload) VALUES (%s, %s, %s)'
    db.execute(insert, (message['message_id'], message['key'], Jsonb(message['payload'])))

client = Client(lease=float(os.environ.get('LEASE', 30)))
client.work('payments', charge) if sys.argv[1] == 'work' else client.consume('ledger', book)
