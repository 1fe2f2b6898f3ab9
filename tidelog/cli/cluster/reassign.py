"""Moving replicas: the options of `tidelog cluster reassign`, and what all such commands print."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click
from msgspec.structs import asdict, replace
from rich.console import Console

from tidelog.cli.client import ask
from tidelog.cli.cluster.reassignment_progress import wait_for_moves
from tidelog.cli.errors import CommandError
from tidelog.cli.output.tables import counted, print_json, print_table
from tidelog.client.client import Client
from tidelog.wire.messages.reassignment import PartitionMove, PartitionMoved

_NUMBERS = ("PARTITION",)

wait_option = click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Return when all of it is done, and show how far it is; Ctrl-C ends only the waiting.",
)


def reassignment(
    *,
    dry_run: bool,
    max_replicas: int,
    drain: Sequence[int],
    balance: bool,
    **named: Any,  # noqa: ANN401  (what click has read)
) -> Callable[[Client], Awaitable[list[PartitionMoved]]]:
    """Return the call that was asked for.

    Raises:
        click.UsageError: The options contradict each other.
    """
    is_named = any(named.values()) or named["partition"] is not None
    if is_named + bool(drain) + balance != 1:
        raise click.UsageError(
            "say what is to move: --topic, --partition and --to or --cancel; or --drain NODE; or"
            " --balance"
        )
    if not is_named:
        return lambda client: client.admin.balance(
            leaving=drain, max_replicas=max_replicas, plan_only=dry_run
        )
    move = _move(**named)
    return lambda client: client.admin.reassign([move], plan_only=dry_run)


def run_moves(
    broker: str,
    request: Callable[[Client], Awaitable[list[PartitionMoved]]],
    *,
    waits: bool,
    as_json: bool,
) -> list[PartitionMoved]:
    """Have replicas moved, wait for it if that is wanted, and print what became of it.

    Raises:
        CommandError: Some could not be moved.
    """

    async def call(client: Client) -> list[PartitionMoved]:
        results = await request(client)
        under_way = {(each.topic, each.partition) for each in results if each.is_under_way}
        if not waits or not under_way:
            return results
        await wait_for_moves(client, under_way, Console(stderr=True))
        return [replace(each, is_under_way=False) for each in results]

    results = ask(broker, call)
    if as_json:
        print_json(moves_as_json(results))
    elif not results:
        click.echo("nothing needs to move")
    else:
        print_moves(results)
    failed = [each.error for each in results if each.error is not None]
    if failed:
        raise CommandError(
            f"{counted(len(failed), 'partition')} could not be moved: {failed[0].message}"
        )
    return results


def _move(
    *, topic: str | None, partition: int | None, nodes: str | None, cancel: bool
) -> PartitionMove:
    if topic is None or partition is None or (nodes is None) != cancel:
        raise click.UsageError("say --topic and --partition, and either --to or --cancel")
    return PartitionMove(topic, partition, None if nodes is None else _node_ids(nodes))


def _node_ids(text: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",")]
    except ValueError as error:
        raise click.UsageError(f"--to is {text!r}; write node ids such as 2,3,4") from error


def moves_as_json(results: Sequence[PartitionMoved]) -> list[dict[str, object]]:
    """Return what becomes of each partition."""
    return [
        {**asdict(each), "error": None if each.error is None else each.error.message}
        for each in results
    ]


def print_moves(results: Sequence[PartitionMoved]) -> None:
    """Print what becomes of each partition."""
    rows = [
        (
            each.topic,
            each.partition,
            _nodes(each.replicas_before),
            _nodes(each.replicas),
            each.error.message if each.error is not None else _state(each),
        )
        for each in results
    ]
    print_table(["TOPIC", "PARTITION", "FROM", "TO", ""], rows, right=_NUMBERS)


def _state(moved: PartitionMoved) -> str:
    return "under way" if moved.is_under_way else ""


def _nodes(node_ids: Sequence[int]) -> str:
    return ",".join(map(str, node_ids))
