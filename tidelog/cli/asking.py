"""What a command asks: brokers, and people."""

import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import trio

from client.client import Client
from tidelog.cli.connection import open_client

Result = TypeVar("Result")


def ask(broker: str, call: Callable[[Client], Awaitable[Result]]) -> Result:
    """Return what `call` returns when it is given a client."""

    async def ask_client() -> Result:
        async with open_client(broker) as client:
            return await call(client)

    return trio.run(ask_client)


def confirm(question: str) -> None:
    """Ask a person.

    Raises:
        click.UsageError: There is nobody to ask.
        click.Abort: The answer is no.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked here whether that is meant; say --yes")
    click.confirm(question, abort=True, err=True)
