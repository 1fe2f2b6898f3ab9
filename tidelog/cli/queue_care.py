"""`tidelog queue`: looking at messages, and what concerns many of them."""

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

import click

from client.client import Client
from client.offsets import OffsetPlace
from client.queue_looking import SeenMessage
from tidelog.cli.asking import ask, confirm
from tidelog.cli.connection import broker_option
from tidelog.cli.message_view import print_dead_letters, print_seen, seen_as_json
from tidelog.cli.options import examples, json_option, read_place
from tidelog.cli.tables import counted, print_json
from wire.queues import MessageState


class _Redrive(TypedDict):
    """Which dead letters go where."""

    to_topic: str | None
    rate: int | None
    only_from: str | None


_STATES = {state.name.lower(): state for state in MessageState}

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
def peek(name: str, max_messages: int, states: tuple[str, ...], broker: str, as_json: bool) -> None:
    """Look at messages without taking them."""
    wanted = [_STATES[state] for state in states]
    seen = ask(broker, lambda client: client.queue(name).peek(max_messages, states=wanted))
    _show(seen, print_seen, as_json=as_json)


@click.command(epilog=examples("tidelog queue leased payments"))
@click.argument("name", metavar="QUEUE")
@_max_option
@broker_option
@json_option
def leased(name: str, max_messages: int, broker: str, as_json: bool) -> None:
    """Show messages that somebody has: who, and until when."""
    seen = ask(broker, lambda client: client.queue(name).leased(max_messages))
    _show(seen, print_seen, as_json=as_json)


@click.command("dead-letters", epilog=examples("tidelog queue dead-letters payments"))
@click.argument("name", metavar="QUEUE")
@_max_option
@broker_option
@json_option
def dead_letters(name: str, max_messages: int, broker: str, as_json: bool) -> None:
    """Show messages that a queue has given up, and why.

    Those in its dead-letter queue that come from it, and those that have none to go to.
    """
    seen = ask(broker, lambda client: client.queue(name).dead_letters(max_messages))
    _show(seen, print_dead_letters, as_json=as_json)


def _show(
    seen: Sequence[SeenMessage],
    print_all: Callable[[Sequence[SeenMessage]], None],
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
def purge(name: str, is_sure: bool, broker: str, as_json: bool) -> None:
    """Do away with all messages of a queue; the records stay in the topic."""
    if not is_sure:
        confirm(f"do away with all messages of queue {name}?")
    count = ask(broker, lambda client: client.queue(name).purge())
    if as_json:
        print_json({"purged": count})
    else:
        click.echo(f"purged {counted(count, 'message')} of {name}")


@click.command(
    epilog=examples(
        "tidelog queue seek payments --to 1h", "tidelog queue seek payments --to earliest --yes"
    )
)
@click.argument("name", metavar="QUEUE")
@click.option(
    "--to",
    callback=read_place,
    required=True,
    metavar="earliest|latest|TIME",
    help="Where to go on; a time such as 2025-01-31T12:00 or 1h (ago).",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@broker_option
@json_option
def seek(name: str, to: OffsetPlace, is_sure: bool, broker: str, as_json: bool) -> None:
    """Hand out again everything from a time on; other queues do not notice.

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
        "tidelog queue redrive payments-dead --rate 100",
        "tidelog queue redrive payments-dead --from payments --to-topic payments-repaired",
        "tidelog queue redrive payments-dead --status",
    )
)
@click.argument("name", metavar="DEAD_LETTER_QUEUE")
@click.option("--to-topic", help="Where to.  [where each message came from]")
@click.option("--rate", type=click.IntRange(min=1), help="Messages a second, of each partition.")
@click.option("--from", "only_from", metavar="QUEUE", help="Only what this queue gave up.")
@click.option("--status", "is_status", is_flag=True, help="Only say how far it is.")
@click.option("--stop", "is_stop", is_flag=True, help="Bring back no more.")
@broker_option
@json_option
def redrive(
    name: str,
    is_status: bool,
    is_stop: bool,
    broker: str,
    as_json: bool,
    **wanted: Unpack[_Redrive],
) -> None:
    """Bring dead letters back to where they came from.

    That goes on whatever happens to brokers, and this command does not wait for it.
    """
    if is_status + is_stop + (set(wanted.values()) != {None}) > 1:
        raise click.UsageError("say either --status, or --stop, or what to bring back")

    async def call(client: Client) -> tuple[int, int]:
        queue = client.queue(name)
        if is_stop:
            await queue.stop_redrive()
        elif not is_status:
            await queue.redrive(
                to_topic=wanted["to_topic"],
                messages_per_s=wanted["rate"],
                only_from=wanted["only_from"],
            )
        counts = await queue.counts()
        return sum(each.moved for each in counts), sum(each.to_move for each in counts)

    moved, to_move = ask(broker, call)
    if as_json:
        print_json({"moved": moved, "to_move": to_move})
    else:
        click.echo(f"{moved:,} of {counted(to_move, 'message')} of {name} moved so far")


COMMANDS = (peek, leased, dead_letters, purge, seek, redrive)
