"""Connections of applications, as far as the outbox and the inbox use them.

Pure: declarations, and calls of the application's own connection. A call neither begins nor ends a
transaction: the application does.
"""

import inspect
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from tidelog.database.dialect import Row


class SyncCursor(Protocol):
    """A cursor by PEP 249, whose calls are not awaited."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the last statement changed."""
        ...

    def execute(self, query: Any, params: Any, /) -> object:  # noqa: ANN401
        """Execute one statement."""
        ...

    def fetchall(self) -> Sequence[Any]:
        """Return the rows that are left."""
        ...

    def close(self) -> object:
        """Close the cursor."""
        ...


class SyncConnection(Protocol):
    """A connection by PEP 249: of psycopg, sqlite3, or the `.connection` of SQLAlchemy's."""

    def cursor(self) -> SyncCursor:
        """Return a cursor."""
        ...


class AsyncConnection(Protocol):
    """A connection whose `execute` returns a cursor when awaited, as of psycopg and aiosqlite."""

    def execute(self, query: Any, params: Any, /) -> Awaitable[Any]:  # noqa: ANN401
        """Execute one statement."""
        ...


def execute(connection: SyncConnection, statement: str, parameters: Sequence[object]) -> int:
    """Execute a statement; return the number of rows that it changed.

    Raises:
        TypeError: The connection is one whose calls are awaited.
    """
    cursor = _cursor_of(connection)
    try:
        cursor.execute(statement, parameters)
        return cursor.rowcount
    finally:
        cursor.close()


def rows_of(
    connection: SyncConnection, statement: str, parameters: Sequence[object]
) -> Sequence[Row]:
    """Execute a query and return all of its rows.

    Raises:
        TypeError: The connection is one whose calls are awaited.
    """
    cursor = _cursor_of(connection)
    try:
        cursor.execute(statement, parameters)
        return cursor.fetchall()
    finally:
        cursor.close()


def _cursor_of(connection: SyncConnection) -> SyncCursor:
    """Return a cursor; refuse connections whose calls do nothing until they are awaited."""
    cursor = connection.cursor()
    call = getattr(cursor, "execute", None)
    if call is None or inspect.iscoroutinefunction(call):
        raise TypeError(
            f"{_name_of(connection)} is a connection whose calls are awaited: await the method of"
            " the same name with `_async`"
        )
    return cursor


async def execute_async(
    connection: AsyncConnection, statement: str, parameters: Sequence[object]
) -> int:
    """Execute a statement; return the number of rows that it changed.

    Raises:
        TypeError: The connection is one whose calls are not awaited.
    """
    cursor = await _executed(connection, statement, parameters)
    count: int = cursor.rowcount
    return count


async def rows_of_async(
    connection: AsyncConnection, statement: str, parameters: Sequence[object]
) -> Sequence[Row]:
    """Execute a query and return all of its rows.

    Raises:
        TypeError: The connection is one whose calls are not awaited.
    """
    cursor = await _executed(connection, statement, parameters)
    rows: Sequence[Row] = await cursor.fetchall()
    return rows


async def _executed(
    connection: AsyncConnection, statement: str, parameters: Sequence[object]
) -> Any:  # noqa: ANN401
    """Execute a statement; return the cursor."""
    executing = connection.execute(statement, parameters)
    if not inspect.isawaitable(executing):
        raise TypeError(
            f"{_name_of(connection)} is a connection whose calls are not awaited: call the method"
            " without `_async`"
        )
    return await executing


def _name_of(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
