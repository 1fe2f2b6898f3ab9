"""The commands `tidelog outbox`: relay, create and describe the table of an outbox."""

import re
from typing import Final

import click

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.options import Decorated, Seconds, examples, json_option
from tidelog.cli.output.tables import print_json
from tidelog.cli.output.times import age_text
from tidelog.outbox import Outbox, OutboxStatus
from tidelog.wire.errors import ConfigError

_POSTGRESQL: Final = re.compile(r"postgres(ql)?://|\w+ *=")
"""URLs and keywords of libpq; everything else is a file of SQLite."""
_DIALECTS: Final = ("postgresql", "sqlite")


def table_options(command: Decorated) -> Decorated:
    """Add the options `--dsn`, `--table` and `--dialect` to a command."""
    for option in reversed(_TABLE_OPTIONS):
        command = option(command)
    return command


_table_option: Final = click.option(
    "--table", default="outbox", show_default=True, metavar="NAME", help="Use this table."
)
_TABLE_OPTIONS: Final = (
    click.option(
        "--dsn",
        required=True,
        envvar="TIDELOG_OUTBOX_DSN",
        show_envvar=True,
        metavar="DSN",
        help="Connect to this database: a URL, or a file of SQLite.",
    ),
    _table_option,
    click.option(
        "--dialect",
        type=click.Choice(_DIALECTS),
        help="Set the kind of the database.  [by the DSN]",
    ),
)


@click.group(cls=ConnectedGroup)
def outbox() -> None:
    """Relay the outbox tables of databases to topics."""


@outbox.command(
    epilog=examples(
        "tidelog outbox relay --dsn postgresql://shop@db/shop",
        "tidelog outbox relay --dsn shop.db --keep 1d --dead-letter-topic refused",
    ),
)
@table_options
@click.option(
    "--poll", type=Seconds(least=0.001), default="200ms", show_default=True, help="Look as often."
)
@click.option(
    "--batch-records",
    type=click.IntRange(1, 100_000),
    default=2_000,
    show_default=True,
    help="Send at most so many rows at once.",
)
@click.option(
    "--keep",
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="Delete relayed rows of this age; 'forever' keeps them.",
)
@click.option("--dead-letter-topic", metavar="TOPIC", help="Send refused rows to this topic.")
def relay(
    dsn: str,
    table: str,
    dialect: str | None,
    *,
    poll: float,
    batch_records: int,
    keep: str,
    dead_letter_topic: str | None,
) -> None:
    """Send the rows of an outbox to their topics until interrupted.

    Each row is in the log exactly once, and the rows of a key are in order, however often the relay
    is killed. One relay works at a time; another one waits for its end. SIGTERM ends it.
    """
    found = _outbox(dsn, table, dialect)
    kept = None if keep == "forever" else keep

    def report(line: str) -> None:
        click.echo(line, err=True)

    ask(
        lambda client: found.relay(
            client,
            dsn,
            poll=poll,
            batch_records=batch_records,
            keep=kept,
            dead_letter_topic=dead_letter_topic,
            report=report,
        ),
    )


@outbox.command(
    cls=click.Command, epilog=examples("tidelog outbox ddl | psql postgresql://shop@db/shop")
)
@_table_option
@click.option(
    "--dialect",
    type=click.Choice(_DIALECTS),
    default="postgresql",
    show_default=True,
    help="Write for this kind of database.",
)
@click.option("--no-notify", is_flag=True, help="Leave out the trigger that wakes the relay.")
def ddl(table: str, dialect: str, *, no_notify: bool) -> None:
    """Print the statements that create an outbox."""
    click.echo(_checked(table, dialect).ddl(notify=not no_notify), nl=False)


@outbox.command(
    cls=click.Command, epilog=examples("tidelog outbox status --dsn postgresql://shop@db/shop")
)
@table_options
@json_option
def status(dsn: str, table: str, dialect: str | None, *, as_json: bool) -> None:
    """Show backlog, position and relay of an outbox.

    The writer is the oldest open transaction that has written to the table: rows wait for its end,
    because it may still commit earlier ones.
    """
    found = _outbox(dsn, table, dialect).status(dsn)
    if as_json:
        print_json(found._asdict())
        return
    for name, text in _lines(found):
        click.echo(f"{name:14}{text}")


@outbox.command(
    cls=click.Command, epilog=examples("tidelog outbox reset --dsn shop.db --next-id 4711")
)
@table_options
@click.option(
    "--next-id",
    type=click.IntRange(1),
    required=True,
    metavar="ID",
    help="Send the rows from this one on.",
)
def reset(dsn: str, table: str, dialect: str | None, *, next_id: int) -> None:
    """Set the first row that the next relay sends.

    For a database that was restored from a backup, or another cluster, when a relay refuses to
    guess. Rows below --next-id count as sent; rows from it on are sent, perhaps again.
    """
    _outbox(dsn, table, dialect).reset(dsn, next_id=next_id)
    click.echo(f"the next relay of {table!r} sends the rows from {next_id} on")


def _outbox(dsn: str, table: str, dialect: str | None) -> Outbox:
    return _checked(table, dialect or ("postgresql" if _POSTGRESQL.match(dsn) else "sqlite"))


def _checked(table: str, dialect: str) -> Outbox:
    try:
        return Outbox(table, dialect=dialect)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--table") from error


def _age(seconds: float) -> str:
    return age_text(int(seconds * 1000))


def _lines(found: OutboxStatus) -> list[tuple[str, str]]:
    age = "" if found.oldest_age_s is None else f", the oldest {_age(found.oldest_age_s)}"
    writer = "none"
    if found.writer_pid is not None:
        writer = f"process {found.writer_pid}"
        if found.writer_age_s is not None:
            writer += f", open for {_age(found.writer_age_s)}"
    pending = "none" if found.pending_id is None else f"up to row {found.pending_id}"
    return [
        ("backlog", f"{found.backlog:,} rows{age}"),
        ("last row", str(found.last_id)),
        ("relayed", f"up to row {found.relayed_id}"),
        ("under way", pending),
        ("relay", "unknown" if found.relay_pid is None else f"server process {found.relay_pid}"),
        ("writer", writer),
        ("transactions", found.name),
    ]
