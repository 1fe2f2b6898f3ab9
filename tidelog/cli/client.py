"""The connection of a command to its brokers."""

import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

import click
import trio

from tidelog.cli.signals import on_signal
from tidelog.client.client import Client, connect
from tidelog.client.cluster.address import parse_addresses
from tidelog.wire.env.real_env import real_env
from tidelog.wire.errors import ConfigError

_CLIENT_NAME = "tidelog-cli"


def _check_addresses(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        parse_addresses(value)
    except ConfigError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return value


broker_option = click.option(
    "--broker",
    envvar="TIDELOG_BROKER",
    default="127.0.0.1:8433",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    callback=_check_addresses,
    help="A broker to connect to; several are separated by commas.",
)


@asynccontextmanager
async def open_client(broker: str) -> AsyncGenerator[Client, None]:
    """Connect to the brokers of `--broker` while the block runs.

    A connection that breaks is made again by itself; people are told, so that they know what
    they are waiting for.
    """
    # Without a handler of ours, warnings would be printed as bare words.
    logging.getLogger("tidelog").addHandler(logging.NullHandler())
    env = replace(real_env(), probe=_Notices())
    async with connect(broker, env=env, client_id=_CLIENT_NAME) as client:
        yield client


class _Notices:
    """Tells people of broken connections."""

    def __init__(self) -> None:
        self._lost: set[object] = set()

    def __call__(self, event: str, **fields: object) -> None:
        """See `wire.env.env.Probe`."""
        address = fields.get("address")
        if event == "client.connection_lost":
            self._lost.add(address)
            click.echo(f"the connection to {address} broke; trying again", err=True)
        elif event == "client.connected" and address in self._lost:
            self._lost.discard(address)
            click.echo(f"connected to {address} again", err=True)


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
        raise click.UsageError("no terminal to confirm this on; say --yes")
    click.confirm(question, abort=True, err=True)
