"""The commands `tidelog queue` that peek at messages or change many of them."""

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

import click

from tidelog.cli.client import ask, confirm
from tidelog.cli.connected import ConnectedCommand
from tidelog.cli.errors import CommandError
from tidelog.cli.names import Name
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import counted, print_json
from tidelog.cli.places import Place, offsets_at, place_option, replaced_option
from tidelog.cli.queue.redrive_progress import (
    print_redrives,
    print_report,
    report_as_json,
    wait_for_redrive,
)
from tidelog.cli.queue.view import (
    print_dead_letters,
    print_seen,
    seen_as_json,
    state_word,
)
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.client.client import Client
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.wire.errors import BatchError
from tidelog.wire.messages.queues import MessageState
from tidelog.wire.messages.redrives import RedriveStatus


class _Redrive(TypedDict):
    """The selection and target of a redrive."""

    to_topic: str | None
    rate: int | None
    only_from: str | None


class _Redriving(_Redrive):
    """The options of `redrive`."""

    is_history: bool
    waits: bool


_STATES = {state_word(state): state for state in MessageState}

_max_option = click.option(
    "--max",
    "max_messages",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Limit the number of messages.",
)


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog queue peek payments", "tidelog queue peek payments --state delayed --json"
    ),
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@_max_option
@click.option(
    "--state",
    "states",
    type=click.Choice(list(_STATES)),
    multiple=True,
    help="Show only messages in this state; repeatable.",
)
@json_option
def peek(name: str, max_messages: int, states: tuple[str, ...], *, as_json: bool) -> None:
    """Show messages without receiving them."""
    wanted = [_STATES[state] for state in states]
    seen = ask(lambda client: client.queue(name).peek(max_messages, states=wanted))
    _show(seen, print_seen, as_json=as_json)


@click.command(
    "in-flight", cls=ConnectedCommand, epilog=examples("tidelog queue in-flight payments")
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@_max_option
@json_option
def in_flight(name: str, max_messages: int, *, as_json: bool) -> None:
    """Show messages in flight, their consumers and timeouts."""
    seen = ask(lambda client: client.queue(name).in_flight(max_messages))
    _show(seen, print_seen, as_json=as_json)


@click.command(
    "dead-letters", cls=ConnectedCommand, epilog=examples("tidelog queue dead-letters payments")
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@_max_option
@json_option
def dead_letters(name: str, max_messages: int, *, as_json: bool) -> None:
    """Show the dead letters of a queue, and their reasons.

    These are the messages of this queue in its dead-letter queue, and the dead letters that have no
    dead-letter queue to move to.
    """
    seen = ask(lambda client: client.queue(name).dead_letters(max_messages))
    _show(seen, print_dead_letters, as_json=as_json)


def _show(
    seen: Sequence[PeekedMessage],
    print_all: Callable[[Sequence[PeekedMessage]], None],
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json([seen_as_json(each) for each in seen])
    elif seen:
        print_all(seen)
    else:
        click.echo("there are no such messages", err=True)


@click.command(cls=ConnectedCommand, epilog=examples("tidelog queue purge payments --yes"))
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@json_option
def purge(name: str, is_sure: bool, *, as_json: bool) -> None:
    """Delete all messages of a queue.

    The records stay in the topic.
    """
    if not is_sure:
        confirm(f"delete all messages of queue {name}?")
    count = ask(lambda client: client.queue(name).purge())
    if as_json:
        print_json({"purged": count})
    else:
        click.echo(f"purged {counted(count, 'message')} of {name}")


@click.command(
    "cancel-scheduled",
    cls=ConnectedCommand,
    epilog=examples("tidelog queue cancel-scheduled payments 0-17"),
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@click.argument("message_ids", nargs=-1, required=True, metavar="MESSAGE_ID...")
@json_option
def cancel_scheduled(name: str, message_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Cancel messages that are still delayed.

    `tidelog queue peek QUEUE --state delayed` shows them. The queue rejects a message that is
    visible or was received.
    """

    async def call(client: Client) -> None:
        try:
            await client.queue(name).cancel_batch(message_ids)
        except BatchError as error:
            done = len(message_ids) - len(error.errors)
            raise CommandError(f"{error}; {counted(done, 'message')} cancelled") from error
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    ask(call)
    if as_json:
        print_json({"cancelled": len(message_ids)})
    else:
        click.echo(f"cancelled {counted(len(message_ids), 'message')} of {name}")


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog queue seek payments --from 1h",
        "tidelog queue seek payments --from beginning --yes",
        "tidelog queue seek payments --from -100",
    ),
)
@click.argument("name", cls=Name, kind="queue", metavar="QUEUE")
@place_option("--from", verb="Deliver from", required=True)
@replaced_option("--to", "--from")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@json_option
def seek(name: str, place: Place, is_sure: bool, *, as_json: bool) -> None:
    """Reset a queue to an offset or a time.

    The queue delivers messages from there on again; other queues on the topic do not change.

    Messages before it count as deleted. Receipt handles from before the seek are void.
    """
    if not is_sure:
        confirm(f"reset queue {name}, regardless of the state of its messages?")

    async def call(client: Client) -> int:
        queue = client.queue(name)
        if isinstance(place, str) or place[0] == "time":
            return await queue.seek(place if isinstance(place, str) else place[1])
        (described,) = await client.admin.describe_queues([name])
        return await queue.seek(await offsets_at(client, described.topic, place))

    count = ask(call)
    if as_json:
        print_json({"messages": count})
    else:
        click.echo(f"{name} has {counted(count, 'message')} now")


@click.command(
    cls=ConnectedCommand,
    epilog=examples(
        "tidelog queue redrive payments-dead --rate 100 --wait",
        "tidelog queue redrive payments-dead --from payments --to-topic payments-repaired",
        "tidelog queue redrive payments-dead --status",
        "tidelog queue redrive payments-dead --history",
        "tidelog queue redrive payments-dead --cancel",
    ),
)
@click.argument("name", cls=Name, kind="queue", metavar="DEAD_LETTER_QUEUE")
@click.option("--to-topic", help="Move to this topic.  [the source of each message]")
@click.option("--rate", type=click.IntRange(min=1), help="Limit messages per second and partition.")
@click.option("--from", "only_from", metavar="QUEUE", help="Move only dead letters of this queue.")
@click.option("--status", "is_status", is_flag=True, help="Show the progress only.")
@click.option("--history", "is_history", is_flag=True, help="List the last ten redrives only.")
@click.option("--cancel", "is_cancel", is_flag=True, help="Cancel the running redrive.")
@click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Show progress until the end; Ctrl-C ends the wait.",
)
@json_option
def redrive(
    name: str,
    is_status: bool,
    is_cancel: bool,
    *,
    as_json: bool,
    **more: Unpack[_Redriving],
) -> None:
    """Move dead letters back to their source queues.

    Brokers continue the redrive after restarts and leader changes. --status and --cancel print the
    progress of the running or last redrive. Every queue on a target topic gets its messages.
    """
    wanted = _Redrive(to_topic=more["to_topic"], rate=more["rate"], only_from=more["only_from"])
    is_history = more["is_history"]
    if is_status + is_cancel + is_history + (set(wanted.values()) != {None}) > 1:
        raise click.UsageError(
            "options exclude each other: give --status, --history, --cancel, or a new redrive"
        )
    if is_history:
        print_redrives(ask(lambda client: client.queue(name).redrives()), as_json=as_json)
        return

    async def call(client: Client) -> RedriveReport:
        queue = client.queue(name)
        if is_cancel:
            await queue.cancel_redrive()
        elif not is_status:
            await queue.redrive(
                to_topic=wanted["to_topic"],
                messages_per_s=wanted["rate"],
                only_from=wanted["only_from"],
            )
        if more["waits"]:
            from rich.console import Console

            return await wait_for_redrive(queue, Console(stderr=True))
        return await queue.redrive_status()

    report = ask(call)
    if as_json:
        print_json(report_as_json(report))
    else:
        print_report(report)
    if more["waits"]:
        _check_end(report, may_be_cancelled=is_cancel)


def _check_end(report: RedriveReport, *, may_be_cancelled: bool) -> None:
    """Raise if a redrive did not complete.

    Raises:
        CommandError: Messages were rejected, or the redrive failed or was cancelled.
    """
    if report.failed:
        were = "was" if report.failed == 1 else "were"
        raise CommandError(f"{counted(report.failed, 'message')} {were} rejected by the target")
    is_cancelled = report.status is RedriveStatus.CANCELLED
    if report.status is RedriveStatus.FAILED or (is_cancelled and not may_be_cancelled):
        reason = f": {report.reason}" if report.reason else ""
        raise CommandError(f"the redrive {'was cancelled' if is_cancelled else 'failed'}{reason}")


COMMANDS = (peek, in_flight, dead_letters, cancel_scheduled, purge, seek, redrive)
