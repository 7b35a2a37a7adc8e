# The shipping service once more, for where there is no Java: it does what Shipping.java does. Wants libpq's variables.
import os, pathlib, re, sys
import psycopg

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'clients'))
from stacksaga import Client

class Refused(Exception):
    sqlstate = 'SG424'  # it had no effect and will have none

def ship(shop, step):
    key, address = re.sub(':(act|compensate)', '', step['idempotency_key']), step['input']['address']
    undo = step['direction'] == 'compensate'
    if address == 'nowhere' and not undo:
        raise Refused('nobody lives at "nowhere"')
    conflict = 'DO NOTHING' if not undo else '(key) DO UPDATE SET recalled = true'
    with psycopg.connect(dbname='depot') as depot:
        depot.execute(f'INSERT INTO parcel VALUES (%s, %s, %s) ON CONFLICT {conflict}', (key, address, undo))
        recalled = depot.execute('SELECT recalled FROM parcel WHERE key = %s', (key,)).fetchone()[0]
    if recalled and not undo:  # a late act, after its compensation
        raise Refused('recalled before')
    return {'recalled': True} if undo else {'shipped': True}

Client(float(os.environ.get('LEASE', 30))).work('shipping', ship)
