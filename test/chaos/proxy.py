"""proxy.py FOLDER SOCKET: what lies between the clients and the server, and may break there.

Listens on a Unix socket in FOLDER and forwards every connection to SOCKET. The file FOLDER/mode is one
word: pass; delay (every piece comes late); hold (half open: nothing passes in either direction, and nobody
is told); mute (the server hears the client, the client hears nothing); cut (what is there is reset).
"""

import asyncio
import pathlib
import random
import socket
import struct
import sys

FOLDER, TARGET = pathlib.Path(sys.argv[1]), sys.argv[2]
PIECE = 65536


class Network:
    """The mode that is in force, and the connections."""

    def __init__(self):
        self.mode = 'pass'
        self.writers = set()

    async def follow(self):
        """Reads the mode; cut happens once, at its beginning."""
        while True:
            mode = (FOLDER / 'mode').read_text()
            if mode == 'cut' != self.mode:
                self.cut()
            self.mode = mode
            await asyncio.sleep(0.02)

    def cut(self):
        """Closes every other connection with what is still under way in it lost."""
        # A piece may be held for a peer that is gone: that socket is closed already.
        there = [writer for writer in self.writers if not writer.is_closing()]
        for writer in random.sample(there, (len(there) + 1) // 2):
            writer.transport.get_extra_info('socket').setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            writer.transport.abort()

    async def forward(self, reader, writer, held):
        self.writers.add(writer)
        try:
            while piece := await reader.read(PIECE):
                while self.mode in held:
                    await asyncio.sleep(0.02)
                if self.mode == 'delay':
                    await asyncio.sleep(random.random() * 0.2)
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            self.writers.discard(writer)
            writer.transport.abort() if self.mode == 'cut' else writer.close()

    async def serve(self, client_reader, client_writer):
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(TARGET)
        except OSError:
            client_writer.close()
            return
        await asyncio.gather(self.forward(client_reader, server_writer, ('hold',)),
                             self.forward(server_reader, client_writer, ('hold', 'mute')))


def listening_socket(path):
    """One whose file is there only when it listens, as whoever sees the file connects at once."""
    new = path.with_suffix('.new')
    new.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(new))
    listener.listen(100)
    new.rename(path)
    return listener


async def main():
    network = Network()
    server = await asyncio.start_unix_server(
        network.serve, sock=listening_socket(FOLDER / pathlib.Path(TARGET).name))
    async with server:
        await network.follow()


asyncio.run(main())
