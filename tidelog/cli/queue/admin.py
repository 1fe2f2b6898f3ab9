"""`tidelog queue`: looking at messages, and what concerns many of them."""

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

import click
from rich.console import Console

from tidelog.cli.client import ask, broker_option, confirm
from tidelog.cli.errors import CommandError
from tidelog.cli.options import examples, json_option, read_offset_spec
from tidelog.cli.output.tables import counted, print_json
from tidelog.cli.queue.redrive_progress import print_report, report_as_json, wait_for_redrive
from tidelog.cli.queue.view import (
    print_dead_letters,
    print_seen,
    seen_as_json,
    state_word,
)
from tidelog.client.admin.redrive_status import RedriveReport
from tidelog.client.client import Client
from tidelog.client.cluster.list_offsets import OffsetSpec
from tidelog.client.queue.inspect.peek import PeekedMessage
from tidelog.wire.errors import BatchError
from tidelog.wire.messages.queues import MessageState
from tidelog.wire.messages.redrives import RedriveStatus


class _Redrive(TypedDict):
    """Which dead letters go where."""

    to_topic: str | None
    rate: int | None
    only_from: str | None


class _Redriving(_Redrive):
    """The same, and whether to wait for it."""

    waits: bool


_STATES = {state_word(state): state for state in MessageState}

_max_option = click.option(
    "--max",
    "max_messages",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How many at most.",
)


@click.command(
    epilog=examples(
        "tidelog queue peek payments", "tidelog queue peek payments --state delayed --json"
    )
)
@click.argument("name", metavar="QUEUE")
@_max_option
@click.option(
    "--state",
    "states",
    type=click.Choice(list(_STATES)),
    multiple=True,
    help="Only messages in this state; may be given several times.",
)
@broker_option
@json_option
def peek(
    name: str, max_messages: int, states: tuple[str, ...], *, broker: str, as_json: bool
) -> None:
    """Show messages without receiving them."""
    wanted = [_STATES[state] for state in states]
    seen = ask(broker, lambda client: client.queue(name).peek(max_messages, states=wanted))
    _show(seen, print_seen, as_json=as_json)


@click.command("in-flight", epilog=examples("tidelog queue in-flight payments"))
@click.argument("name", metavar="QUEUE")
@_max_option
@broker_option
@json_option
def in_flight(name: str, max_messages: int, broker: str, *, as_json: bool) -> None:
    """Show messages in flight: their consumer, and until when."""
    seen = ask(broker, lambda client: client.queue(name).in_flight(max_messages))
    _show(seen, print_seen, as_json=as_json)


@click.command("dead-letters", epilog=examples("tidelog queue dead-letters payments"))
@click.argument("name", metavar="QUEUE")
@_max_option
@broker_option
@json_option
def dead_letters(name: str, max_messages: int, broker: str, *, as_json: bool) -> None:
    """Show the dead letters of a queue, and their reasons.

    Those in its dead-letter queue that come from it, and those that have none to go to.
    """
    seen = ask(broker, lambda client: client.queue(name).dead_letters(max_messages))
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


@click.command(epilog=examples("tidelog queue purge payments --yes"))
@click.argument("name", metavar="QUEUE")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@broker_option
@json_option
def purge(name: str, is_sure: bool, broker: str, *, as_json: bool) -> None:
    """Delete all messages of a queue.

    The records stay in the topic.
    """
    if not is_sure:
        confirm(f"delete all messages of queue {name}?")
    count = ask(broker, lambda client: client.queue(name).purge())
    if as_json:
        print_json({"purged": count})
    else:
        click.echo(f"purged {counted(count, 'message')} of {name}")


@click.command("cancel-scheduled", epilog=examples("tidelog queue cancel-scheduled payments 0-17"))
@click.argument("name", metavar="QUEUE")
@click.argument("message_ids", nargs=-1, required=True, metavar="MESSAGE_ID...")
@broker_option
@json_option
def cancel_scheduled(
    name: str, message_ids: tuple[str, ...], broker: str, *, as_json: bool
) -> None:
    """Cancel messages that are still delayed.

    `tidelog queue peek QUEUE --state delayed` shows them. A message that is visible or was received
    is refused.
    """

    async def call(client: Client) -> None:
        try:
            await client.queue(name).cancel_batch(message_ids)
        except BatchError as error:
            done = len(message_ids) - len(error.errors)
            raise CommandError(f"{error}; {counted(done, 'message')} cancelled") from error
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    ask(broker, call)
    if as_json:
        print_json({"cancelled": len(message_ids)})
    else:
        click.echo(f"cancelled {counted(len(message_ids), 'message')} of {name}")


@click.command(
    epilog=examples(
        "tidelog queue seek payments --to 1h", "tidelog queue seek payments --to earliest --yes"
    )
)
@click.argument("name", metavar="QUEUE")
@click.option(
    "--to",
    callback=read_offset_spec,
    required=True,
    metavar="earliest|latest|TIME",
    help="Where to go on; a time such as 2025-01-31T12:00 or 1h (ago).",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@broker_option
@json_option
def seek(name: str, to: OffsetSpec, is_sure: bool, *, broker: str, as_json: bool) -> None:
    """Reset a queue to an offset or a time.

    Messages from there on are delivered again; other queues on the topic do not change.

    What is before it counts as done, and what was received before cannot be settled any more.
    """
    if not is_sure:
        confirm(f"move queue {name}, whatever its messages are?")

    async def call(client: Client) -> int:
        return await client.queue(name).seek(to)

    count = ask(broker, call)
    if as_json:
        print_json({"messages": count})
    else:
        click.echo(f"{name} has {counted(count, 'message')} now")


@click.command(
    epilog=examples(
        "tidelog queue redrive payments-dead --rate 100 --wait",
        "tidelog queue redrive payments-dead --from payments --to-topic payments-repaired",
        "tidelog queue redrive payments-dead --status",
        "tidelog queue redrive payments-dead --cancel",
    )
)
@click.argument("name", metavar="DEAD_LETTER_QUEUE")
@click.option("--to-topic", help="Where to.  [where each message came from]")
@click.option("--rate", type=click.IntRange(min=1), help="Messages a second, of each partition.")
@click.option("--from", "only_from", metavar="QUEUE", help="Only what this queue gave up.")
@click.option("--status", "is_status", is_flag=True, help="Only say how far it is.")
@click.option("--cancel", "is_cancel", is_flag=True, help="Bring back no more.")
@click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Return when it is over, and show how far it is; Ctrl-C ends only the waiting.",
)
@broker_option
@json_option
def redrive(
    name: str,
    is_status: bool,
    is_cancel: bool,
    *,
    broker: str,
    as_json: bool,
    **more: Unpack[_Redriving],
) -> None:
    """Move dead letters back to their source queues.

    That goes on whatever happens to brokers. With --status or --cancel, say how far the one is that
    runs, or ran last. Every queue on a topic sees the messages that come back there.
    """
    wanted = _Redrive(to_topic=more["to_topic"], rate=more["rate"], only_from=more["only_from"])
    if is_status + is_cancel + (set(wanted.values()) != {None}) > 1:
        raise click.UsageError("say either --status, or --cancel, or what to bring back")

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
            return await wait_for_redrive(queue, Console(stderr=True))
        return await queue.redrive_status()

    report = ask(broker, call)
    if as_json:
        print_json(report_as_json(report))
    else:
        print_report(report)
    if more["waits"]:
        _check_end(report, may_be_cancelled=is_cancel)


def _check_end(report: RedriveReport, *, may_be_cancelled: bool) -> None:
    """Check that a redrive has ended as it was meant to.

    Raises:
        CommandError: It has not.
    """
    if report.failed:
        were = "was" if report.failed == 1 else "were"
        raise CommandError(f"{counted(report.failed, 'message')} {were} refused")
    is_cancelled = report.status is RedriveStatus.CANCELLED
    if report.status is RedriveStatus.FAILED or (is_cancelled and not may_be_cancelled):
        reason = f": {report.reason}" if report.reason else ""
        raise CommandError(f"the redrive {'was cancelled' if is_cancelled else 'failed'}{reason}")


COMMANDS = (peek, in_flight, dead_letters, cancel_scheduled, purge, seek, redrive)
