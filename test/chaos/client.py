"""client.py KIND NAME FOLDER SEED: one client of the harness, a process of its own until the phase is stop."""

import pathlib
import sys

import clients
import operators
import services
from session import Session

KINDS = {
    'starter': clients.Starter, 'publisher': clients.Publisher, 'payer': clients.Payer,
    'deduper': clients.Deduper, 'brawler': clients.Brawler, 'operator': operators.Operator, 'watcher': clients.Watcher,
    'service': services.Service, 'receiver': services.Receiver, 'shipper': services.Shipper,
}


def main():
    kind, name, folder, seed = sys.argv[1:]
    session = Session(name, pathlib.Path(folder), seed)
    client = KINDS[kind](session)
    while (phase := session.phase()) == 'run':
        client.turn()
    # What only starts things has nothing left to do once drain() says so.
    drain = getattr(client, 'drain', lambda: True)
    while phase != 'stop' and not drain():
        phase = session.phase()


main()
