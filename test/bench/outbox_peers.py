"""What the benches of the outbox share: the messages, and PgQ beside the extension."""

import os
import pathlib
import subprocess
import sys
import tempfile

# About 125 bytes as text; the keys are a thousand, so that order per key means something.
PAYLOAD = ('{"order": 4711, "customer": "c-20817", "amount": 1999, "currency": "EUR", '
           '"items": [{"sku": "A-1", "count": 2}]}')
KEYS = 1000


def unpack_pgq(major):
    """Puts Debian's PgQ where the bench's server looks for extensions, beside stacksaga.

    The package is not installed: it would start a daemon of its own.
    """
    package = f'postgresql-{major}-pgq3'
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # apt's own user may write nowhere else
        done = subprocess.run(['apt-get', '-qq', 'download', package], cwd=folder,
                              capture_output=True, text=True)
        files = list(pathlib.Path(folder).glob('*.deb'))
        if done.returncode != 0 or len(files) != 1:
            sys.exit(f'PgQ is not here: apt-get download {package} says\n{done.stderr}')
        subprocess.run(['dpkg-deb', '-x', files[0], os.environ['STACKSAGA_DESTDIR']], check=True)


def add_pgq(db):
    """Makes the extension PgQ and a queue in it, with a consumer."""
    if not db.sql("SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pgq')"):
        unpack_pgq(db.sql("SELECT current_setting('server_version_num')::int / 10000"))
    db.sql('CREATE EXTENSION pgq')
    db.sql("SELECT pgq.create_queue('orders'), pgq.register_consumer('orders', 'drain')")
