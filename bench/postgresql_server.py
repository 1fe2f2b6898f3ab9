"""A PostgreSQL server in a temporary directory, for benchmarks and tests."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

import psycopg

_PLACES: Final = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin")
"""Debian does not put the server's programs on the path."""
_USER: Final = "postgres"
"""The server refuses to run as root."""
_SETTINGS: Final = {
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

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        """Keep data and socket in a directory that belongs to the user of the server."""
        self._settings = {**_SETTINGS, **settings}
        self._directory = directory
        self._data = directory / "data"

    @property
    def dsn(self) -> str:
        """Keywords of libpq for the database of the tests."""
        return f"host={self._directory} dbname=postgres user=tidelog"

    def create(self) -> None:
        """Create the data directory."""
        self._run("initdb", "--username=tidelog", "--auth=trust", "--no-sync", str(self._data))
        settings = "".join(f"{name} = '{value}'\n" for name, value in self._settings.items())
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
        if (self._data / "postmaster.pid").exists():
            self.kill()

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
def postgresql_server(parent: Path | None = None, **settings: str) -> Generator[PostgresqlServer]:
    """Run a server while the block runs, in a directory of its own below `parent`."""
    # The path of a socket must be short, and its user must be able to read it.
    directory = Path(tempfile.mkdtemp(prefix="tidelog-pg-", dir=parent))
    try:
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER)
            os.chown(directory, user.pw_uid, user.pw_gid)
        server = PostgresqlServer(directory, settings)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.close()
    finally:
        shutil.rmtree(directory)
