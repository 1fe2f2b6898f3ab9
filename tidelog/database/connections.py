"""Connections of applications, as far as the outbox and the inbox use them.

Pure: declarations, and calls of the application's own connection. A call neither begins nor ends a
transaction: the application does.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from tidelog.database.dialect import Row


class SyncConnection(Protocol):
    """A connection by PEP 249: of psycopg, sqlite3, or the `.connection` of SQLAlchemy's."""

    def cursor(self) -> Any:  # noqa: ANN401  (the cursors of drivers have no common type)
        """Return a cursor."""
        ...


class AsyncConnection(Protocol):
    """A connection whose `execute` returns a cursor when awaited, as of psycopg and aiosqlite."""

    def execute(self, query: Any, params: Any, /) -> Awaitable[Any]:  # noqa: ANN401
        """Execute one statement."""
        ...


def execute(connection: SyncConnection, statement: str, parameters: Sequence[object]) -> int:
    """Execute a statement; return the number of rows that it changed."""
    cursor = connection.cursor()
    try:
        cursor.execute(statement, parameters)
        count: int = cursor.rowcount
        return count
    finally:
        cursor.close()


def rows_of(
    connection: SyncConnection, statement: str, parameters: Sequence[object]
) -> Sequence[Row]:
    """Execute a query and return all of its rows."""
    cursor = connection.cursor()
    try:
        cursor.execute(statement, parameters)
        rows: Sequence[Row] = cursor.fetchall()
        return rows
    finally:
        cursor.close()


async def execute_async(
    connection: AsyncConnection, statement: str, parameters: Sequence[object]
) -> int:
    """Execute a statement; return the number of rows that it changed."""
    cursor = await connection.execute(statement, parameters)
    count: int = cursor.rowcount
    return count


async def rows_of_async(
    connection: AsyncConnection, statement: str, parameters: Sequence[object]
) -> Sequence[Row]:
    """Execute a query and return all of its rows."""
    cursor = await connection.execute(statement, parameters)
    rows: Sequence[Row] = await cursor.fetchall()
    return rows
