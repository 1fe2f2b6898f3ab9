"""A PostgreSQL server of its own, on a socket in a temporary directory."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

import psycopg

_PLACES: Final = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin")
"""Debian does not put the server's programs on the path."""
_USER: Final = "postgres"
"""The server refuses to run as root."""
_SETTINGS: Final = {
    "fsync": "off",  # a kill keeps what the kernel has; nothing here cuts the power
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "60",
    "max_prepared_transactions": "4",
    "shared_buffers": "32MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


def find_program(name: str) -> Path | None:
    """Return the path of a program of PostgreSQL, `None` if it is not installed."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    paths = [path for place in _PLACES for path in Path("/").glob(f"{place[1:]}/{name}")]
    return max(paths, default=None)


@final
class PostgresqlServer:
    """A cluster of databases, which can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        """Keep data and socket in a directory that belongs to the user of the server."""
        self._directory = directory
        self._data = directory / "data"

    @property
    def dsn(self) -> str:
        """Keywords of libpq for the database of the tests."""
        return f"host={self._directory} dbname=postgres user=tidelog"

    def create(self) -> None:
        """Create the data directory."""
        self._run("initdb", "--username=tidelog", "--auth=trust", "--no-sync", str(self._data))
        settings = "".join(f"{name} = '{value}'\n" for name, value in _SETTINGS.items())
        path = self._data / "postgresql.conf"
        path.write_text(
            f"{path.read_text('utf-8')}{settings}unix_socket_directories = '{self._directory}'\n",
            encoding="utf-8",
        )

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        log = str(self._directory / "log")
        self._run("pg_ctl", "start", "--wait", "--silent", f"--pgdata={self._data}", f"--log={log}")

    def kill(self) -> None:
        """End the server without a checkpoint: it recovers at its next start."""
        self._run("pg_ctl", "stop", "--mode=immediate", "--silent", f"--pgdata={self._data}")

    def connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """Return a connection."""
        return psycopg.connect(self.dsn)

    def close(self) -> None:
        """Kill the server if it runs."""
        try:
            pid = int((self._data / "postmaster.pid").read_text("utf-8").split()[0])
        except FileNotFoundError:
            return
        os.kill(pid, signal.SIGQUIT)
        self._run("pg_ctl", "stop", "--mode=immediate", "--silent", f"--pgdata={self._data}")

    def _run(self, name: str, *arguments: str) -> None:
        program = find_program(name)
        assert program is not None, f"{name} is not installed"
        subprocess.run(
            [str(program), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._directory,
            user=_USER if os.geteuid() == 0 else None,
        )


@contextmanager
def running_server() -> Iterator[PostgresqlServer]:
    """Run a server while the block runs."""
    # A path of a socket is short, and users other than root cannot read pytest's directories.
    directory = Path(tempfile.mkdtemp(prefix="tidelog-postgresql-"))
    try:
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER)
            os.chown(directory, user.pw_uid, user.pw_gid)
        server = PostgresqlServer(directory)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.close()
    finally:
        shutil.rmtree(directory)
