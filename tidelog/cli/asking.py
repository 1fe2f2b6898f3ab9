"""What a command asks: brokers, and people."""

import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import trio

from client.client import Client
from tidelog.cli.connection import open_client
from tidelog.cli.signals import on_signal

Result = TypeVar("Result")
_GRACE_S = 1.0
"""How long a signal leaves, such as for giving back what was received."""


def ask(broker: str, call: Callable[[Client], Awaitable[Result]]) -> Result:
    """Return what `call` returns when it is given a client.

    Ctrl-C cancels it. (Python would raise an error wherever it is then, also in the middle of what
    cannot be left half done.)

    Raises:
        click.exceptions.Exit: A signal ended it.
    """

    async def ask_client() -> Result:
        asking, closing = trio.CancelScope(), trio.CancelScope()

        def end() -> None:
            asking.cancel()
            closing.deadline = trio.current_time() + _GRACE_S

        async with on_signal(end) as interruption:
            with closing:
                async with open_client(broker) as client:
                    with asking:
                        return await call(client)
        raise click.exceptions.Exit(interruption.status)

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
