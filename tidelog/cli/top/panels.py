"""Panels of `tidelog top`: their columns, and the order of their rows.

Pure: no clock, no I/O.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from tidelog.cli.output.tables import size_text
from tidelog.cli.output.times import age_text
from tidelog.cli.top.activity import Activity

_SMALL: Final = 10
_MS_PER_S: Final = 1000


@final
@dataclass(frozen=True, slots=True)
class Column:
    """A column of a panel."""

    key: str
    """Name for `--sort`."""
    field: str
    """Name in the rows, and in JSON."""
    title: str
    text: Callable[[Any], str] = str
    """Returns the cell of a value that is known."""
    rank: int = 0
    """Narrow terminals show the columns of low rank; 0 is always shown."""
    is_ascending: bool = False
    """Whether the lowest value comes first."""
    is_text: bool = False

    def cell(self, row: object) -> str:
        """Return the cell of a row."""
        value = getattr(row, self.field)
        return "-" if value is None else self.text(value)


@final
@dataclass(frozen=True, slots=True)
class Panel:
    """A table of one kind of rows, the name in the first column."""

    key: str
    """Name of the option, and of the rows in an activity and in JSON."""
    noun: str
    """Name of one row."""
    columns: Sequence[Column]
    order: Callable[[Any], float]
    """Returns the place of a row without `--sort`: rows with high numbers come first."""

    def rows(self, activity: Activity, sort: str | None) -> list[Any]:
        """Return all rows, sorted by a column if the panel has it; equal rows by name."""
        rows: list[Any] = list(getattr(activity, self.key))
        name = self.columns[0].field
        rows.sort(key=lambda row: getattr(row, name))
        column = next((each for each in self.columns if each.key == sort), None)
        if column is None:
            rows.sort(key=self.order, reverse=True)
            return rows
        field = column.field
        known = [row for row in rows if getattr(row, field) is not None]
        known.sort(key=lambda row: getattr(row, field), reverse=not column.is_ascending)
        return known + [row for row in rows if getattr(row, field) is None]


def rate_text(per_s: float) -> str:
    """Return a rate, with a decimal if it is low."""
    return f"{per_s:.1f}" if 0 < per_s < _SMALL else f"{per_s:,.0f}"


def duration_text(seconds: float) -> str:
    """Return a short duration in milliseconds or seconds."""
    ms = seconds * _MS_PER_S
    if ms >= _MS_PER_S:
        return f"{seconds:.1f} s"
    return f"{ms:.1f} ms" if ms < _SMALL else f"{ms:.0f} ms"


def _count_text(count: float) -> str:
    return f"{count:,.0f}"


def _size_text(size_bytes: float) -> str:
    return size_text(int(size_bytes))


def _age_text(seconds: float) -> str:
    return age_text(int(seconds * _MS_PER_S))


def _percent_text(ratio: float) -> str:
    return f"{ratio:.0%}"


BROKERS: Final = Panel(
    "brokers",
    "broker",
    (
        Column("node", "node_id", "NODE", is_ascending=True),
        Column("state", "state", "STATE", is_ascending=True, is_text=True),
        Column("leads", "leader_count", "LEADS", _count_text, 4),
        Column("requests", "requests_per_s", "REQUESTS/S", rate_text, 1),
        Column("p99", "request_p99_s", "P99", duration_text, 2),
        Column("loop-lag", "loop_lag_p99_s", "LOOP LAG", duration_text, 6),
        Column("cpu", "cpu_ratio", "CPU", _percent_text, 3),
        Column("memory", "memory_bytes", "MEMORY", _size_text, 5),
        Column("connections", "connection_count", "CONNECTIONS", _count_text, 8),
        Column("disk-free", "disk_free_bytes", "DISK FREE", _size_text, 7, is_ascending=True),
    ),
    order=lambda row: -row.node_id,
)
TOPICS: Final = Panel(
    "topics",
    "topic",
    (
        Column("name", "name", "TOPIC", is_ascending=True, is_text=True),
        Column("records-in", "received_records_per_s", "RECORDS IN/S", rate_text, 2),
        Column("bytes-in", "received_bytes_per_s", "BYTES IN/S", _size_text, 1),
        Column("bytes-out", "sent_bytes_per_s", "BYTES OUT/S", _size_text, 3),
        Column("size", "size_bytes", "SIZE", _size_text, 4),
        Column("out-of-sync", "under_replicated_count", "UNDER-REPLICATED", _count_text, 5),
    ),
    order=lambda row: row.traffic,
)
QUEUES: Final = Panel(
    "queues",
    "queue",
    (
        Column("name", "name", "QUEUE", is_ascending=True, is_text=True),
        Column("ready", "ready", "READY", _count_text, 1),
        Column("leased", "leased", "LEASED", _count_text, 3),
        Column("delayed", "delayed", "DELAYED", _count_text, 7),
        Column("age", "oldest_age_s", "OLDEST", _age_text, 2),
        Column("sent", "sent_per_s", "SENT/S", rate_text, 5),
        Column("received", "received_per_s", "RECEIVED/S", rate_text, 6),
        Column("deleted", "deleted_per_s", "DELETED/S", rate_text, 4),
        Column("redelivered", "redelivered_per_s", "REDELIVERED/S", rate_text, 8),
        Column("empty", "empty_receives_per_s", "EMPTY/S", rate_text, 9),
    ),
    order=lambda row: row.oldest_age_s,
)
GROUPS: Final = Panel(
    "groups",
    "group",
    (
        Column("name", "name", "GROUP", is_ascending=True, is_text=True),
        Column("lag", "lag_records", "LAG", _count_text, 1),
        Column("lag-time", "lag_s", "LAG TIME", _age_text, 2),
        Column("members", "member_count", "MEMBERS", _count_text, 3),
        Column("rebalances", "rebalances_per_s", "REBALANCES/S", rate_text, 4),
    ),
    order=lambda row: row.lag_s or 0.0,
)

PANELS: Final[Mapping[str, Panel]] = {each.key: each for each in (BROKERS, TOPICS, QUEUES, GROUPS)}
SORT_KEYS: Final = tuple(
    dict.fromkeys(column.key for panel in PANELS.values() for column in panel.columns)
)
