"""A port of this machine that leads to the private server's Unix socket, which JDBC cannot use."""

import contextlib
import os
import socket
import threading


def pump(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()


def serve_by_tcp(address=os.environ):
    """Opens one, for as long as this process lives. The address has the variables by which libpq finds the server."""
    listener = socket.create_server(('127.0.0.1', 0))

    def accept():
        while True:
            client, _ = listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{address['PGHOST']}/.s.PGSQL.{os.environ['PGPORT']}")
            for pair in (client, server), (server, client):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]
