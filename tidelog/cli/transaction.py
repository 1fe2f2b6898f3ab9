"""The commands `tidelog transaction`, which list transactions by name."""

from collections.abc import Sequence

import click

from tidelog.cli.client import ask
from tidelog.cli.connected import ConnectedGroup
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import print_json, print_table
from tidelog.cli.output.times import moment_text
from tidelog.wire.messages.transactions import TransactionDescription, TransactionStatus

_NUMBERS = ("OPEN ID", "LAST ID")


@click.group(cls=ConnectedGroup)
def transaction() -> None:
    """List transactions."""


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
