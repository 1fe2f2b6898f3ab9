"""The command `tidelog queue create --from-file`."""

from typing import BinaryIO

import click

from tidelog.cli.client import ask
from tidelog.cli.errors import CommandError
from tidelog.cli.output.tables import counted, print_json
from tidelog.cli.queue.queue_lines import QueueLine, queues_of_lines
from tidelog.client.admin.queue_batches import NewQueue
from tidelog.client.client import Client
from tidelog.wire.errors import printable


def create_of_lines(file: BinaryIO, common: NewQueue, *, as_json: bool) -> None:
    """Create a queue for each line of a file, with what is `common` to all.

    Raises:
        CommandError: Some lines have no queue, or one that cannot be created; all others exist.
    """
    lines = queues_of_lines(file, common)

    async def call(client: Client) -> list[QueueLine]:
        named = [line for line in lines if line.queue is not None]
        results = await client.admin.create_queues(
            [line.queue for line in named if line.queue is not None]
        )
        errors = {
            line.number: str(result.error)
            for line, result in zip(named, results, strict=True)
            if result.error is not None
        }
        return [line._replace(error=errors.get(line.number, line.error)) for line in lines]

    done = ask(call)
    failed = [line for line in done if line.error]
    created = len(done) - len(failed)
    if as_json:
        print_json(
            [{"line": line.number, "name": line.name, "error": line.error or None} for line in done]
        )
    else:
        for line in failed:
            click.echo(f"line {line.number}: {printable(line.name)}: {line.error}", err=True)
        click.echo(f"created {counted(created, 'queue')}")
    if failed:
        raise CommandError(
            f"{counted(len(failed), 'line')} of {len(done):,} failed; the same file can be given"
            " again, for existing queues are no error"
        )
