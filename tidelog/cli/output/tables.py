"""The results of commands on standard output, as tables or JSON."""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

_UNIT = 1024
_WIDTH_OF_A_PIPE = 10_000
"""Columns of a table outside of a terminal: programs must find unfolded lines."""


def print_json(value: object) -> None:
    """Print one JSON document."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def print_names(names: Sequence[str], *, as_json: bool) -> None:
    """Print names alone, one per line, or as a JSON array."""
    if as_json:
        print_json(names)
    else:
        sys.stdout.writelines(f"{name}\n" for name in names)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """Print a table with a header; align the columns `right` to the right."""
    cells = [[shown(cell) for cell in row] for row in rows]
    aligned = [title in right for title in columns]
    lines = _simple_lines([columns, *cells], aligned)
    if lines is not None:
        click.echo(_bold(lines[0]))
        sys.stdout.writelines(f"{line}\n" for line in lines[1:])
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for title, is_right in zip(columns, aligned, strict=True):
        table.add_column(title, justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    print_rendered(table)


def print_fields(facts: Mapping[str, object]) -> None:
    """Print names and values, one pair per line."""
    cells = [(name, shown(value)) for name, value in facts.items()]
    lines = _simple_lines(cells, (False, False))
    if lines is not None:
        for (name, _), line in zip(cells, lines, strict=True):
            click.echo(_bold(name) + line[len(name) :])
        return
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for pair in cells:
        table.add_row(*pair)
    print_rendered(table)


def _simple_lines(rows: Sequence[Sequence[str]], aligned: Sequence[bool]) -> list[str] | None:
    """Return the lines of a table without its styles; `None` if it needs rich.

    Rich folds the cells of a table that is wider than the terminal, and knows the width of every
    character. Its import takes a fifth of the time of a command.
    """
    if not all(cell.isascii() and cell.isprintable() for row in rows for cell in row):
        return None
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sys.stdout.isatty() and sum(widths) + 2 * len(widths) > get_terminal_size().columns:
        return None
    return [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, aligned, strict=True)
        ).rstrip()
        for row in rows
    ]


def _bold(text: str) -> str:
    """Return a text in bold on a terminal."""
    return click.style(text, bold=True) if sys.stdout.isatty() else text


def print_labels(labels: Mapping[str, str]) -> None:
    """Print the labels of a topic or queue below an empty line, if there are any."""
    if labels:
        sys.stdout.write("\n")
        print_table(["LABEL", "VALUE"], sorted(labels.items()))


def print_settings(
    config: Mapping[str, str],
    overrides: Collection[str],
    source: str,
    *,
    of_cluster: Collection[str] = (),
) -> None:
    """Print every setting with its source: `source`, the cluster or the default."""
    sources = {**dict.fromkeys(of_cluster, "cluster"), **dict.fromkeys(overrides, source)}
    rows = [(name, value, sources.get(name, "default")) for name, value in config.items()]
    print_table(["SETTING", "VALUE", "SOURCE"], rows)


def nodes_text(node_ids: Iterable[int]) -> str:
    """Return node ids as in `--to 1,2,3`."""
    return ",".join(map(str, node_ids))


def shown(value: object) -> str:
    """Return a value as a cell of a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def counted(count: int, thing: str) -> str:
    """Return `1 partition`, `2 partitions`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def total_text(
    counts: Sequence[int | None], text: Callable[[int], str] = "{:,}".format
) -> str | None:
    """Return the sum of counts; `>= 12` if some are unknown, `None` if all are."""
    known = [count for count in counts if count is not None]
    if counts and not known:
        return None
    return f"{'' if len(known) == len(counts) else '>= '}{text(sum(known))}"


def size_text(size_bytes: int) -> str:
    """Return a size in the largest unit in which it is at least 1."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _UNIT:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _UNIT
    return f"{size:.1f} TiB"


def print_rendered(renderable: "RenderableType") -> None:
    """Print tables and texts; outside of a terminal, no line is folded."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    # No markup: names may contain brackets.
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(renderable)
    lines = (line.rstrip() for line in captured.get().splitlines())
    sys.stdout.write("".join(f"{line}\n" for line in lines))
