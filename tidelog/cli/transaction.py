"""The commands `tidelog transaction`, which list and forget transactions by name."""

from collections.abc import Sequence

import click

from tidelog.cli.client import ask, confirm
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.options import Seconds, examples, json_option
from tidelog.cli.output.tables import counted, print_json, print_table
from tidelog.cli.output.times import moment_text
from tidelog.wire.messages.transactions import TransactionDescription, TransactionStatus

_NUMBERS = ("OPEN ID", "LAST ID")
_REASONS_MAX = 10
"""Maximum kept names that are printed with their reason."""


@click.group(cls=ConnectedGroup)
def transaction() -> None:
    """List transactions, and forget their names."""


@transaction.command(
    "list", epilog=examples("tidelog transaction list", "tidelog transaction list nightly --json")
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
def list_all(names: tuple[str, ...], as_json: bool) -> None:
    """List the open and the last transaction of each name.

    Each Spark streaming query that writes has a name, and each job with a transactionalId.
    A name expires seven days after its last use.
    """
    found = ask(lambda client: client.admin.list_transactions(names or None))
    if as_json:
        print_json([_as_json(each) for each in found])
    elif not found:
        what = "is no such transaction name" if names else "are no transactions"
        click.echo(f"there {what}; the first transaction of a name creates it", err=True)
    else:
        _print(found)


@transaction.command(
    epilog=examples(
        "tidelog transaction forget backfill-17",
        "tidelog transaction forget --prefix nightly-2026- --unused-for 2d --yes",
    )
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--prefix", metavar="TEXT", help="Forget all names that begin so.")
@click.option(
    "--unused-for",
    "unused_for_s",
    type=Seconds(),
    default="1d",
    show_default=True,
    metavar="DURATION",
    help="Keep names that were begun or committed within this time, 10 min or more.",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@json_option
def forget(
    names: tuple[str, ...],
    prefix: str | None,
    unused_for_s: float,
    *,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Forget names that no program uses again; the cluster remembers 100,000.

    The cluster then takes ids of the name as new: a program that repeats its last transaction, as
    a Spark query does after a crash, writes it a second time. Names with an open transaction, or
    with records that are not readable yet, are kept.
    """
    if bool(names) == (prefix is not None):
        raise click.UsageError(
            "give names, or --prefix; `tidelog transaction list` shows the names"
        )
    if prefix == "":
        raise click.UsageError("--prefix must not be empty: programs may use any of the names")
    known = [
        each.name
        for each in ask(lambda client: client.admin.list_transactions(names or None))
        if each.name.startswith(prefix or "")
    ]
    if known and not is_sure:
        which = f"name {known[0]}" if len(known) == 1 else f"{len(known)} names"
        confirm(f"forget {which}? a program that goes on with it may write a transaction twice")
    kept = ask(lambda client: client.admin.forget_transactions(known, unused_for=unused_for_s))
    forgotten = [name for name in known if name not in kept]
    unknown = [name for name in names if name not in known]
    if as_json:
        reasons = {name: str(error) for name, error in kept.items()}
        print_json({"forgotten": forgotten, "kept": reasons, "unknown": unknown})
    else:
        for error in list(kept.values())[:_REASONS_MAX]:
            click.echo(str(error), err=True)
        if unknown:
            click.echo(f"not known, so there is nothing to forget: {', '.join(unknown)}", err=True)
        click.echo(f"forgot {counted(len(forgotten), 'name')}, kept {len(kept)}")
    if kept:
        raise click.exceptions.Exit(1)


def _as_json(found: TransactionDescription) -> dict[str, object]:
    return {
        "name": found.name,
        "open_transaction_id": found.open_transaction_id,
        "begun_at_ms": found.begun_at_ms,
        "expires_at_ms": found.expires_at_ms,
        "last_transaction_id": found.last_transaction_id,
        "last_status": _status(found),
        "last_used_ms": found.last_used_ms,
    }


def _print(found: Sequence[TransactionDescription]) -> None:
    rows = [
        (
            each.name,
            each.open_transaction_id,
            None if each.expires_at_ms is None else moment_text(each.expires_at_ms),
            each.last_transaction_id,
            _status(each),
            moment_text(each.last_used_ms),
        )
        for each in found
    ]
    headings = ["NAME", "OPEN ID", "OPEN UNTIL", "LAST ID", "STATUS", "LAST USED"]
    print_table(headings, rows, right=_NUMBERS)


def _status(found: TransactionDescription) -> str | None:
    """Return the status of the last transaction; a number if a newer broker sent another one."""
    if found.last_status is None:
        return None
    try:
        return TransactionStatus(found.last_status).name.lower()
    except ValueError:
        return str(found.last_status)
