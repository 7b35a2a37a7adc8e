# Makes a request take effect once per Idempotency-Key. handler(db, body) works in the transaction
# of its marker. It returns {'status': ...}, which is kept and replayed; if it raises, nothing stays.
import json, re
import psycopg

BEGIN = 'SELECT outcome, response, lease FROM stacksaga.idempotency_begin(%s, %s, %s)'
FINISH = 'SELECT stacksaga.idempotency_finish(%s, %s, %s, %s)'

def idempotent(pool, scope, header, body, handler):
    key = re.fullmatch(r'"([^"\\]+)"', header or '')  # without a key, begin raises SG400
    try:
        with pool.connection() as db:  # commits at the end; an exception rolls back
            outcome, response, lease = db.execute(BEGIN, (scope, key and key[1], body)).fetchone()
            if outcome != 'replay':
                with db.transaction() as effects:  # a savepoint
                    response = handler(db, json.loads(body))
                    if response['status'] >= 400:
                        raise psycopg.Rollback(effects)
                db.execute(FINISH, (scope, key[1], lease, json.dumps(response)))
            return response
    except psycopg.Error as error:
        state = error.diag.sqlstate or ''
        status = int(state[2:]) if re.match('S[GR]', state) else 400 if state[:2] == '22' else 500
        return {'status': status, 'title': error.diag.message_primary or str(error), 'detail': error.diag.message_hint}
