"""Dialects of SQL: names, parameters, and the differences between PostgreSQL and SQLite.

Pure: no clock, no I/O.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, LiteralString, cast, get_args

from tidelog.wire.errors import ConfigError

Dialect = Literal["postgresql", "sqlite"]
ParamStyle = Literal["format", "qmark", "dollar"]
"""Placeholders: `%s` (psycopg), `?` (sqlite3, aiosqlite) or `$1` (asyncpg)."""
Row = Sequence[Any]
"""Values of one row: those of a driver have no static type."""

_STYLES: Final[dict[Dialect, ParamStyle]] = {"postgresql": "format", "sqlite": "qmark"}
_NAME: Final = re.compile(r"[^\x00.%?$]+(?:\.[^\x00.%?$]+)?")
"""Without the marks of placeholders."""
_NAME_BYTES_MAX: Final = 48
"""A name in PostgreSQL has 63 bytes, and other names are made of the name of a table."""


def checked_dialect(dialect: str) -> Dialect:
    """Return a dialect.

    Raises:
        ConfigError: It is unknown.
    """
    if dialect in get_args(Dialect):
        return cast("Dialect", dialect)
    raise ConfigError(f"dialect {dialect!r} is unknown: use 'postgresql' or 'sqlite'")


def checked_style(style: str | None, dialect: Dialect) -> ParamStyle:
    """Return a style of parameters, by default that of the dialect's driver.

    Raises:
        ConfigError: It is unknown.
    """
    if style is None:
        return _STYLES[dialect]
    if style in get_args(ParamStyle):
        return cast("ParamStyle", style)
    raise ConfigError(f"paramstyle {style!r} is unknown: use 'format', 'qmark' or 'dollar'")


def checked_table(table: str) -> str:
    """Return the name of a table, perhaps after its schema and a dot.

    Raises:
        ConfigError: It is empty, has several dots, or is too long.
    """
    if not _NAME.fullmatch(table) or any(
        len(part.encode()) > _NAME_BYTES_MAX for part in table.split(".")
    ):
        raise ConfigError(
            f"table {table!r} is no name of a table: give NAME or SCHEMA.NAME, each of at most"
            f" {_NAME_BYTES_MAX} bytes and without . % ? $"
        )
    return table


def quoted(name: str) -> str:
    """Return a name, perhaps with its schema, that no database reads as anything else."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def trusted(text: str) -> LiteralString:
    """Return a statement whose names are quoted, which psycopg demands of its type."""
    return text  # pyright: ignore[reportReturnType]


def literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def placeholders(style: ParamStyle, count: int, *, rows: int = 1) -> str:
    """Return the placeholders of `rows` rows in parentheses, separated by commas."""
    if style == "dollar":
        numbers = iter(range(1, rows * count + 1))
        marks: Iterable[str] = (
            ", ".join(f"${next(numbers)}" for _ in range(count)) for _ in range(rows)
        )
        return ", ".join(f"({row})" for row in marks)
    mark = "%s" if style == "format" else "?"
    return ", ".join([f"({', '.join([mark] * count)})"] * rows)


def in_style(statement: str, style: ParamStyle) -> str:
    """Return a statement with `?` placeholders in another style; it has no other `?`, no `%`."""
    if style == "qmark":
        return statement
    if style == "format":
        return statement.replace("?", "%s")
    first, *rest = statement.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))
