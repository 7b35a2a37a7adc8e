"""Does the steps of one queue by POSTs to one URL: service.py QUEUE URL. Wants libpq's variables (PGHOST, ...).

    service.py payments https://pay.example/charges       and for what undoes them
    service.py refunds https://pay.example/refunds
"""
import datetime, http.client, json, pathlib, re, sys, urllib.parse
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'clients'))
from stacksaga import Client, log

TIMEOUT = 10     # seconds for each part of the exchange
LARGEST = 10**6  # bytes of an answer

class Failed(Exception):
    def __init__(self, sqlstate, why, retry_after=None):
        super().__init__(why)
        self.sqlstate, self.retry_after = sqlstate, retry_after

def sqlstate_of(status, headers):
    """What the status of an answer says of this attempt."""
    if status in (425, 429) or status == 503 and headers['Retry-After']:
        return 'SR503'  # retryable: it was not begun
    if status in (408, 409) or status >= 500:
        return 'SR504'  # unknown: it may have been begun, and 409 says that it has
    return 'SG424'      # non_retryable

def pause_of(headers):
    """Seconds; where it is a date, or more than an hour, the step's own policy decides."""
    seconds = headers['Retry-After'] or ''
    return datetime.timedelta(seconds=int(seconds)) if re.fullmatch(r'\d{1,4}', seconds) and int(seconds) <= 3600 else None

def post(url, key, body):
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == 'https' else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=TIMEOUT)
    try:
        connection.connect()
    except OSError as error:  # refused, no such name, TLS: nothing was sent
        raise Failed('SR503', f'{parts.netloc}: {error}')
    try:
        headers = {'Content-Type': 'application/json', 'Idempotency-Key': f'"{key}"'}
        connection.request('POST', parts.path or '/', json.dumps(body), headers)
        answer = connection.getresponse()  # follows no redirect
        if not 200 <= answer.status < 300:
            log(url, key, answer.status, answer.read(500))  # not into the error, which everybody sees
            raise Failed(sqlstate_of(answer.status, answer.headers), f'{answer.status} {answer.reason}', pause_of(answer.headers))
        return output_of(answer.read(LARGEST + 1))
    except (OSError, http.client.HTTPException) as error:  # sent, and no whole answer
        raise Failed('SR504', f'{parts.netloc}: {error!r}')
    finally:
        connection.close()

def output_of(text):
    """What later steps and the compensation get. The effect has happened: no answer of the provider may fail the step."""
    if len(text) > LARGEST or b'\\u0000' in text:
        return {'omitted': 'the answer is too large, or holds what jsonb does not'}
    try:
        return json.loads(text) if text else None
    except ValueError:
        return {'body': text.decode(errors='replace').replace('\0', '')}

def effect(db, step):
    # The same for the charge and its refund, so that a refund finds a charge whose answer nobody has seen.
    reference = re.sub(':(act|compensate)', '', step['idempotency_key'])
    body = {'reference': reference, **step['input'], 'charge': (step['results'] or {}).get('charge')}
    return post(sys.argv[2], step['idempotency_key'], body)

if __name__ == '__main__':
    Client().work(sys.argv[1], effect)
