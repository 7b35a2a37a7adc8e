# Sends a mail for each order that ends: the consumer of the outbox's subscription "mails". Wants MAILS, a folder, and
# libpq's variables.
import os, pathlib, signal, sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'clients'))
from stacksaga import Client

folder = pathlib.Path(os.environ['MAILS'])

def send(shop, message):
    """A message may come twice, under the same id. Who sends mails takes it as a key; here it names the file."""
    order, mail = message['payload'], folder / f'{message["message_id"]}.txt'
    is_first, draft = not mail.exists(), mail.with_suffix('.draft')
    draft.write_text(f'To: {order["customer"]}\n\nYour order {order["order"]} is {message["topic"].split(".")[1]}.\n')
    draft.replace(mail)
    if order.get('mail') == 'crash' and is_first:
        os.kill(os.getpid(), signal.SIGKILL)  # after the mail, before its acknowledgement

Client(float(os.environ.get('LEASE', 30))).consume('mails', send)
