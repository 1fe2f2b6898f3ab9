"""Statements of SQL about the tables of inboxes.

Pure: no clock, no I/O. All inboxes of a database share two tables: the ids of processed messages,
and the positions of consumers.
"""

from typing import Final, LiteralString, final

from tidelog.database.dialect import Dialect, ParamStyle, in_style, placeholders, quoted, trusted

_POSTGRESQL: Final = """\
create table if not exists {seen} (
    inbox text not null,
    message_id text not null,
    seen_at timestamptz not null default now(),
    primary key (inbox, message_id)
);
create index if not exists {index} on {seen} (inbox, seen_at);
create table if not exists {positions} (
    inbox text not null,
    topic text not null,
    partition integer not null,
    topic_id bytea not null,
    next_offset bigint not null,
    primary key (inbox, topic, partition)
);
"""
_SQLITE: Final = """\
create table if not exists {seen} (
    inbox text not null,
    message_id text not null,
    seen_at text not null default current_timestamp,
    primary key (inbox, message_id)
) without rowid;
create index if not exists {index} on {seen} (inbox, seen_at);
create table if not exists {positions} (
    inbox text not null,
    topic text not null,
    partition integer not null,
    topic_id blob not null,
    next_offset integer not null,
    primary key (inbox, topic, partition)
) without rowid;
"""


@final
class InboxStatements:
    """Statements for the tables of one name."""

    def __init__(self, table: str, dialect: Dialect, style: ParamStyle) -> None:
        """Write statements for a checked name of a table."""
        self._table = table
        self._dialect: Dialect = dialect
        self._style: ParamStyle = style
        self._seen = quoted(table)
        self._positions = quoted(f"{table}_positions")

    def ddl(self) -> LiteralString:
        """Return the statements that create the tables; they may be executed again."""
        text = _SQLITE if self._dialect == "sqlite" else _POSTGRESQL
        index = quoted(f"{self._table.rpartition('.')[2]}_seen_at")
        text = text.format(seen=self._seen, positions=self._positions, index=index)
        return trusted(text)

    def insert_seen(self) -> str:
        """Return the statement that adds the id of a message, unless it is there."""
        marks = placeholders(self._style, 2)
        return f"insert into {self._seen} (inbox, message_id) values {marks} on conflict do nothing"

    def delete_seen(self) -> str:
        """Return the statement that deletes the ids that are older than some seconds."""
        is_old = (
            "seen_at < datetime('now', -? || ' seconds')"
            if self._dialect == "sqlite"
            else "seen_at < now() - ? * interval '1 second'"
        )
        return in_style(f"delete from {self._seen} where inbox = ? and {is_old}", self._style)

    def upsert_position(self) -> str:
        """Return the statement that moves a position on, if it is not beyond an offset."""
        return in_style(
            f"insert into {self._positions} as old"
            " (inbox, topic, partition, topic_id, next_offset) values (?, ?, ?, ?, ?)"
            " on conflict (inbox, topic, partition)"
            " do update set next_offset = excluded.next_offset"
            " where old.topic_id = excluded.topic_id and old.next_offset <= ?",
            self._style,
        )

    def select_positions(self) -> str:
        """Return the query of all positions of an inbox."""
        return in_style(
            f"select topic, partition, next_offset from {self._positions} where inbox = ?",
            self._style,
        )

    def select_position(self) -> str:
        """Return the query of one position."""
        return in_style(
            f"select topic_id, next_offset from {self._positions}"
            " where inbox = ? and topic = ? and partition = ?",
            self._style,
        )

    def delete_positions(self) -> str:
        """Return the statement that deletes the positions in a topic."""
        return in_style(f"delete from {self._positions} where inbox = ? and topic = ?", self._style)
