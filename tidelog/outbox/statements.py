"""Statements of SQL about the tables of an outbox: definition, inserts, position.

Pure: no clock, no I/O. The position table is named after the outbox, `outbox_relay` for `outbox`,
and has one row.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final, LiteralString, final

from tidelog.database.dialect import (
    Dialect,
    ParamStyle,
    in_style,
    literal,
    placeholders,
    quoted,
    trusted,
)
from tidelog.outbox.rows import Values

LOCK_CLASS: Final = 0x7464_6C67
"""First key of the advisory lock of a relay; the second one is the oid of the table."""
CHANNEL_PREFIX: Final = "tidelog_outbox_"
"""Prefix of the channel of notifications, before the oid of the table."""
ROWS_MAX: Final = 1_000
"""Rows of one insert."""
_COLUMNS: Final = ("topic", "partition", "key", "value", "headers")

_POSTGRESQL: Final = """\
create table if not exists {table} (
    id bigint generated always as identity primary key,
    topic text not null,
    partition integer,
    key bytea,
    value bytea,
    headers text,
    created_at timestamptz not null default clock_timestamp()
);
create table if not exists {relay} (
    one smallint primary key default 1 check (one = 1),
    uuid uuid not null default gen_random_uuid(),
    batch bigint not null default 0,
    relayed_id bigint not null default 0,
    relayed_at bigint,
    pending_id bigint,
    pending_at bigint,
    updated_at timestamptz not null default now()
);
insert into {relay} (one) values (1) on conflict do nothing;
-- The ids of a table that was dropped and created again go on.
select setval(pg_get_serial_sequence({table_text}, 'id'), greatest(relayed_id, pending_id))
    from {relay} where greatest(relayed_id, pending_id)
    > coalesce(pg_sequence_last_value(pg_get_serial_sequence({table_text}, 'id')::regclass), 0);
create or replace function {function}() returns trigger language plpgsql as $$
begin
    if tg_op = 'TRUNCATE' then
        raise exception 'table % is an outbox: delete rows, and only those that were relayed',
            tg_table_name;
    end if;
    perform pg_notify('{channel}' || tg_relid, '');
    return null;
end $$;
drop trigger if exists tidelog_outbox_truncate on {table};
create trigger tidelog_outbox_truncate before truncate on {table}
    for each statement execute function {function}();
drop trigger if exists tidelog_outbox_notify on {table};
"""
_POSTGRESQL_NOTIFY: Final = """\
create trigger tidelog_outbox_notify after insert on {table}
    for each statement execute function {function}();
"""
_SQLITE: Final = """\
create table if not exists {table} (
    id integer primary key autoincrement,
    topic text not null,
    partition integer,
    key blob,
    value blob,
    headers text,
    created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000 as integer))
);
create table if not exists {relay} (
    one integer primary key default 1 check (one = 1),
    uuid text not null default (lower(hex(randomblob(16)))),
    batch integer not null default 0,
    relayed_id integer not null default 0,
    relayed_at integer,
    pending_id integer,
    pending_at integer,
    updated_at text not null default current_timestamp
);
insert or ignore into {relay} (one) values (1);
-- The ids of a table that was dropped and created again go on.
insert into sqlite_sequence (name, seq)
    select {table_text}, coalesce(pending_id, relayed_id) from {relay}
    where not exists (select 1 from sqlite_sequence where name = {table_text} collate nocase);
"""


@final
class OutboxStatements:
    """Statements for one table."""

    def __init__(self, table: str, dialect: Dialect, style: ParamStyle) -> None:
        """Write statements for a checked name of a table."""
        self.table = table
        self.dialect: Dialect = dialect
        self._style: ParamStyle = style
        self._table = quoted(table)
        self._relay = quoted(f"{table}_relay")
        columns = ", ".join(map(quoted, _COLUMNS))
        self._insert = f"insert into {self._table} ({columns}) values "
        self._insert_one = self._insert + placeholders(style, len(_COLUMNS))

    @property
    def advice(self) -> str:
        """What to do when the tables are missing."""
        return (
            "create it with the output of: tidelog outbox ddl"
            f" --dialect {self.dialect} --table {self.table}"
        )

    def ddl(self, *, with_notify: bool) -> LiteralString:
        """Return the statements that create the tables; they may be executed again."""
        if self.dialect == "sqlite":
            parts = [_SQLITE]
        else:
            parts = [_POSTGRESQL, *([_POSTGRESQL_NOTIFY] if with_notify else [])]
        text = literal(self._table if self.dialect == "postgresql" else self.table)
        names = {"table": self._table, "relay": self._relay, "table_text": text}
        function = quoted(f"{self.table}_notify")
        text = "".join(
            part.format(**names, function=function, channel=CHANNEL_PREFIX) for part in parts
        )
        return trusted(text)

    def insert(self, rows: Sequence[Values]) -> tuple[LiteralString, list[object]]:
        """Return the statement that inserts rows, and its parameters."""
        text = self._insert_one
        if len(rows) > 1:
            text = self._insert + placeholders(self._style, len(_COLUMNS), rows=len(rows))
        return trusted(text), list(chain.from_iterable(rows))

    def select_position(self) -> str:
        """Return the query of the position."""
        uuid = "uuid" if self.dialect == "sqlite" else "replace(uuid::text, '-', '')"
        return (
            f"select {uuid}, batch, relayed_id, relayed_at, pending_id, pending_at"
            f" from {self._relay}"
        )

    def update_position(self) -> str:
        """Return the statement that replaces the position if it has not changed."""
        now = "current_timestamp" if self.dialect == "sqlite" else "now()"
        uuid = "uuid" if self.dialect == "sqlite" else "replace(uuid::text, '-', '')"
        return in_style(
            f"update {self._relay} set batch = ?, relayed_id = ?, relayed_at = ?, pending_id = ?,"
            f" pending_at = ?, updated_at = {now}"
            f" where {uuid} = ? and batch = ? and relayed_id = ? and coalesce(pending_id, -1) = ?",
            self._style,
        )

    def reset_position(self) -> str:
        """Return the statement that starts a new name at a row id."""
        is_sqlite = self.dialect == "sqlite"
        uuid = "lower(hex(randomblob(16)))" if is_sqlite else "gen_random_uuid()"
        return in_style(
            f"update {self._relay} set uuid = {uuid}, batch = 0, relayed_id = ?,"
            " relayed_at = null, pending_id = null, pending_at = null",
            self._style,
        )

    def select_rows(self) -> str:
        """Return the query of the first rows after an id, up to an id, a number and a size."""
        size = " + ".join(f"coalesce(length({name}), 0)" for name in ("key", "value", "headers"))
        key_and_value = "key, value"
        if self.dialect == "sqlite":  # A column of bytes may have text there.
            key_and_value = "cast(key as blob) as key, cast(value as blob) as value"
        return in_style(
            "select id, topic, partition, key, value, headers, created_us from"
            f" (select id, topic, partition, {key_and_value}, headers,"
            f" {self._created_us} as created_us,"
            f" {size} as size, sum({size}) over (order by id rows unbounded preceding) as total"
            f" from {self._table} where id > ? and id <= ? order by id limit ?) as chosen"
            " where total - size < ?",
            self._style,
        )

    def select_fingerprint(self) -> str:
        """Return the query of the time of an insert."""
        return in_style(f"select {self._created_us} from {self._table} where id = ?", self._style)

    def select_backlog(self) -> str:
        """Return the query of the number of rows after an id, and the age of the first."""
        now = (
            "(julianday('now') - 2440587.5) * 86400000 - created_at) / 1000.0"
            if self.dialect == "sqlite"
            else "extract(epoch from clock_timestamp() - created_at))"
        )
        return in_style(
            f"select count(*), (select ({now} from {self._table} where id > ? order by id limit 1)"
            f" from {self._table} where id > ?",
            self._style,
        )

    def delete_rows(self) -> str:
        """Return the statement that deletes the first rows up to an id that are old enough."""
        is_old = (
            "created_at < (julianday('now') - 2440587.5) * 86400000 - ? * 1000"
            if self.dialect == "sqlite"
            else "created_at < now() - ? * interval '1 second'"
        )
        first = f"select id from {self._table} where id <= ? order by id limit ?"
        return in_style(
            f"delete from {self._table} where id in ({first}) and {is_old}", self._style
        )

    @property
    def _created_us(self) -> str:
        if self.dialect == "sqlite":
            return "created_at * 1000"
        return "(extract(epoch from created_at) * 1000000)::bigint"
