"""Reassignments: the options of `tidelog cluster reassign`, and the output of all moves."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click
from msgspec.structs import asdict, replace

from tidelog.cli.client import ask
from tidelog.cli.errors import CommandError
from tidelog.cli.output.tables import counted, print_json, print_table
from tidelog.client.client import Client
from tidelog.wire.messages.reassignment import PartitionMove, PartitionMoved

_NUMBERS = ("PARTITION",)

wait_option = click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Show progress until all moves end; Ctrl-C ends the wait.",
)


def reassignment(
    *,
    dry_run: bool,
    max_replicas: int,
    drain: Sequence[int],
    balance: bool,
    **named: Any,  # noqa: ANN401  (the options of click)
) -> Callable[[Client], Awaitable[list[PartitionMoved]]]:
    """Return the call for the options.

    Raises:
        click.UsageError: The options contradict each other.
    """
    is_named = any(named.values()) or named["partition"] is not None
    if is_named + bool(drain) + balance != 1:
        raise click.UsageError(
            "no single move is given: use --topic, --partition and --to or --cancel; or --drain;"
            " or --balance"
        )
    if not is_named:
        return lambda client: client.admin.balance(
            leaving=drain, max_replicas=max_replicas, plan_only=dry_run
        )
    move = _move(**named)
    return lambda client: client.admin.reassign([move], plan_only=dry_run)


def run_moves(
    request: Callable[[Client], Awaitable[list[PartitionMoved]]],
    *,
    waits: bool,
    as_json: bool,
) -> list[PartitionMoved]:
    """Request moves of replicas, wait for their end if `waits`, and print the results.

    Raises:
        CommandError: A partition could not be moved.
    """

    async def call(client: Client) -> list[PartitionMoved]:
        results = await request(client)
        under_way = {(each.topic, each.partition) for each in results if each.is_under_way}
        if not waits or not under_way:
            return results
        from rich.console import Console

        from tidelog.cli.cluster.reassignment_progress import wait_for_moves

        await wait_for_moves(client, under_way, Console(stderr=True))
        return [replace(each, is_under_way=False) for each in results]

    results = ask(call)
    if as_json:
        print_json(moves_as_json(results))
    elif not results:
        click.echo("no replica needs to move")
    else:
        print_moves(results)
    failed = [each.error for each in results if each.error is not None]
    if failed:
        raise CommandError(
            f"reassignment failed for {counted(len(failed), 'partition')}: {failed[0].message}"
        )
    return results


def _move(
    *, topic: str | None, partition: int | None, nodes: str | None, cancel: bool
) -> PartitionMove:
    if topic is None or partition is None or (nodes is None) != cancel:
        raise click.UsageError(
            "a move is incomplete: give --topic, --partition, and either --to or --cancel"
        )
    return PartitionMove(topic, partition, None if nodes is None else _node_ids(nodes))


def _node_ids(text: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",")]
    except ValueError as error:
        raise click.UsageError(
            f"--to is {text!r}, not a list of node ids: write it as 2,3,4"
        ) from error


def moves_as_json(results: Sequence[PartitionMoved]) -> list[dict[str, object]]:
    """Return the result for each partition."""
    return [
        {**asdict(each), "error": None if each.error is None else each.error.message}
        for each in results
    ]


def print_moves(results: Sequence[PartitionMoved]) -> None:
    """Print the result for each partition."""
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
