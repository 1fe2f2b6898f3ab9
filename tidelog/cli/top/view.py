"""The output of `tidelog top`, as tables and JSON.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidelog.cli.cluster.view import health_line
from tidelog.cli.output.tables import counted
from tidelog.cli.top.activity import Activity, BrokerActivity
from tidelog.cli.top.panels import PANELS, Column, Panel, rate_text
from tidelog.client.admin.cluster_health import ClusterSeverity, cluster_health

_GAP: Final = 2
"""Columns of a terminal between two columns of a table."""
_NAME_WIDTH_MIN: Final = 16
"""Width that names keep before columns are left out."""
_FRAME: Final = 3
"""Lines of a panel without its rows: the header, the rows that are left out, and an empty line."""
_REASONS_MAX: Final = 3
_STYLE_OF_SEVERITY: Final = {
    ClusterSeverity.HEALTHY: "green",
    ClusterSeverity.DEGRADED: "yellow",
    ClusterSeverity.UNAVAILABLE: "red",
}
_ALIVE: Final = ("alive", "controller")


@final
@dataclass(frozen=True, slots=True)
class ViewOptions:
    """What is shown."""

    panels: Sequence[str] = tuple(PANELS)
    """Keys of panels."""
    sort: str | None = None
    """Key of a column; panels without it keep their order."""
    limit: int | None = None
    """Maximum rows of a panel; `None` without a limit."""


def picture(
    activity: Activity,
    options: ViewOptions,
    *,
    width: int | None = None,
    height: int | None = None,
    notice: str = "",
    keys: str = "",
) -> RenderableType:
    """Return the state of a cluster, at most as large as a terminal.

    Args:
        activity: The state.
        options: What is shown.
        width: Columns of the terminal; `None` without a limit.
        height: Lines of the terminal; `None` without a limit.
        notice: Line below the header.
        keys: Last line.
    """
    head = [_line(line, style) for line, style in _head(activity, notice)]
    panels = [PANELS[key] for key in options.panels]
    rows = {panel.key: panel.rows(activity, options.sort) for panel in panels}
    limits = [len(rows[panel.key][: options.limit]) for panel in panels]
    if height is not None:
        used = len(head) + bool(keys) + _FRAME * len(panels)
        limits = shared_lines(limits, height - used)
    parts: list[RenderableType] = [*head]
    for panel, limit in zip(panels, limits, strict=True):
        parts += [_line(""), _table(panel, rows[panel.key][:limit], sort=options.sort, width=width)]
        left_out = len(rows[panel.key]) - limit
        if left_out:
            parts.append(_line(f"and {counted(left_out, f'more {panel.noun}')}", "dim"))
    return Group(*parts, *([_line(""), _line(keys, "dim")] if keys else []))


def activity_as_json(activity: Activity, options: ViewOptions) -> dict[str, object]:
    """Return the state of a cluster, with the rows of each panel and their number."""
    cluster, health = activity.cluster, cluster_health(activity.cluster)
    found: dict[str, object] = {
        "cluster_id": cluster.cluster_id,
        "node_id": cluster.node_id,
        "controller_id": cluster.controller_id,
        "health": {
            "severity": health.severity,
            "reason": health.reason,
            "next_step": health.next_step,
        },
        "alert_count": activity.alert_count,
        "interval_s": _number(activity.interval_s),
    }
    if "queues" in options.panels:
        found["uncounted_queue_partition_count"] = activity.uncounted_count
    for panel in (PANELS[key] for key in options.panels):
        rows = panel.rows(activity, options.sort)
        found[f"{panel.noun}_count"] = len(rows)
        found[panel.key] = [
            {name: _number(value) for name, value in row._asdict().items()}
            for row in rows[: options.limit]
        ]
    return found


def shared_lines(wanted: Sequence[int], lines: int) -> list[int]:
    """Return how many of so many lines each panel gets: at least one, and none more than it wants.

    Lines that one panel does not want go to the others.
    """
    shares = [min(1, each) for each in wanted]
    left = lines - sum(shares)
    while left > 0 and shares != list(wanted):
        for place, each in enumerate(wanted):
            if shares[place] < each and left > 0:
                shares[place] += 1
                left -= 1
    return shares


def _head(activity: Activity, notice: str) -> list[tuple[str, str]]:
    """Return the lines of the header with their styles."""
    cluster, brokers = activity.cluster, activity.brokers
    answering = sum(not each.reason for each in brokers)
    facts = [f"{answering} of {len(brokers):,} brokers answer"]
    rates = [each.requests_per_s for each in brokers if each.requests_per_s is not None]
    if rates:
        facts.append(f"{rate_text(sum(rates))} requests/s")
    if activity.alert_count is not None:
        facts.append(counted(activity.alert_count, "alert"))
    style = _STYLE_OF_SEVERITY[cluster_health(cluster).severity]
    silent = [each for each in brokers if each.reason and each.state.startswith("no ")]
    return [
        (f"cluster {cluster.cluster_id}: {', '.join(facts)}", "bold"),
        (health_line(cluster), style),
        *((_silence(each), "red") for each in silent[:_REASONS_MAX]),
        *([(_uncounted(activity.uncounted_count), "yellow")] if activity.uncounted_count else []),
        *([(notice, "red")] if notice else []),
    ]


def _silence(broker: BrokerActivity) -> str:
    return f"node {broker.node_id} is missing in the figures: {broker.reason}"


def _uncounted(count: int) -> str:
    return f"{counted(count, 'queue partition')} not counted yet; the brokers read them now"


def _table(panel: Panel, rows: Sequence[Any], *, sort: str | None, width: int | None) -> Table:
    cells = {column.key: [column.cell(row) for row in rows] for column in panel.columns}
    if panel.key == "brokers":
        cells["state"] = [
            "controller" if row.is_controller and row.state == "alive" else row.state
            for row in rows
        ]
    columns, name_width = _fitting(panel.columns, cells, width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(
            column.title,
            justify="left" if column.is_text else "right",
            header_style="bold underline" if column.key == sort else "bold",
            no_wrap=True,
            overflow="ellipsis",
            max_width=None if place else name_width,
        )
    for number in range(len(rows)):
        table.add_row(*(_cell(column, cells[column.key][number]) for column in columns))
    return table


def _fitting(
    columns: Sequence[Column], cells: dict[str, list[str]], width: int | None
) -> tuple[list[Column], int | None]:
    """Return the columns that fit into a terminal, and the width for names."""
    if width is None:
        return list(columns), None
    widths = {
        column.key: max(map(cell_len, [column.title, *cells[column.key]])) for column in columns
    }
    name, *others = columns
    kept = [name, *others]
    name_min = min(widths[name.key], _NAME_WIDTH_MIN)

    def left() -> int:
        """Return the width that is left for names."""
        return width - sum(widths[each.key] + _GAP for each in kept[1:])

    for column in sorted(others, key=lambda each: each.rank, reverse=True):
        if left() >= name_min or not column.rank:
            break
        kept.remove(column)
    return kept, max(1, min(widths[name.key], left()))


def _cell(column: Column, text: str) -> Text:
    is_bad = column.key == "state" and text not in _ALIVE
    return Text(text, style="red" if is_bad else "")


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _number(value: object) -> object:
    """Return a number as JSON has it: whole numbers without a decimal, others to a millionth."""
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() else round(value, 6)
