"""The command `tidelog bench`, which measures one's own cluster (kafka-producer-perf-test)."""

import sys
from typing import Any

import click

from tidelog.cli.bench.figures import (
    COLUMNS,
    NUMBERS,
    Figures,
    Plan,
    described,
    figures_as_json,
    rows_of,
)
from tidelog.cli.bench.measures import measure
from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedCommand
from tidelog.cli.options import Seconds, examples, json_option
from tidelog.cli.output.tables import print_json, print_table

_SIZE_BYTES_MAX = 1_000_000
"""Below the default of `max_message_bytes`."""
_BATCH_BYTES_MAX = 32 << 20
_RECORDS_ALONE_S = 3600.0
"""Duration of a figure that a number of records ends."""


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog bench",
        "tidelog bench --partitions 6 --size 1000 --compression lz4",
        "tidelog bench --records 10000 --batch 1 --json",
    ),
)
@click.option(
    "--seconds",
    type=Seconds(0.1, 3600),
    help="Measure each of the five figures for so long.  [3]",
)
@click.option(
    "--records",
    "count_max",
    type=click.IntRange(1),
    help="Measure so many records instead.",
)
@click.option(
    "--size",
    "size_bytes",
    type=click.IntRange(1, _SIZE_BYTES_MAX),
    default=100,
    show_default=True,
    help="Set the bytes of each value.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Set the records of a call and the messages of a request.",
)
@click.option(
    "--acks",
    type=click.Choice(("all", "1", "0")),
    default="all",
    show_default=True,
    help="Wait for all in-sync replicas, the leader or none.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Set the partitions of topic and queue.",
)
@click.option(
    "--compression",
    type=click.Choice(("none", "lz4", "zstd")),
    default="none",
    show_default=True,
    help="Compress batches.",
)
@json_option
def bench(
    seconds: float | None,
    count_max: int | None,
    *,
    as_json: bool,
    **options: Any,  # noqa: ANN401
) -> None:
    """Measure produce, consume and queue rates of the cluster.

    Creates temporary topics and a queue, whose names begin with tidelog-bench-, and deletes them,
    also after Ctrl-C. Each rate begins after a warm-up. This one client is a single process on one
    core: for more than a core, run several at once. Values are random letters, which compress to
    about a half. The latency is the time from the send of a record to its consumer, with one
    record under way.
    """
    if seconds is not None and count_max is not None:
        raise click.UsageError("--seconds and --records exclude each other: give one")
    default_s = 3.0 if count_max is None else _RECORDS_ALONE_S
    plan = Plan(seconds=default_s if seconds is None else seconds, count_max=count_max, **options)
    if plan.size_bytes * plan.batch > _BATCH_BYTES_MAX:
        raise click.UsageError("--size times --batch is above 32 MiB: give a smaller --batch")
    figures = ask(lambda client: measure(client, plan, _show_phase))
    if as_json:
        print_json(figures_as_json(plan, figures))
    else:
        _print(plan, figures)


def _show_phase(name: str) -> None:
    """Print the running figure on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"measuring {name} ...", err=True)


def _print(plan: Plan, figures: Figures) -> None:
    click.echo(described(plan))
    click.echo()
    print_table(COLUMNS, rows_of(figures), right=NUMBERS)
