"""The client connection of a command."""

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
from tidelog.wire.env.real.real_env import real_env
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
    help="Connect to this broker; separate several by commas.",
)


@asynccontextmanager
async def open_client(broker: str) -> AsyncGenerator[Client, None]:
    """Connect to the brokers of `--broker` while the block runs.

    The client reconnects by itself. A line on standard error reports each lost connection.
    """
    # Without a handler, Python would print warnings as bare text.
    logging.getLogger("tidelog").addHandler(logging.NullHandler())
    env = replace(real_env(), probe=_Notices())
    async with connect(broker, env=env, client_id=_CLIENT_NAME) as client:
        yield client


class _Notices:
    """Reports lost connections on standard error."""

    def __init__(self) -> None:
        self._lost: set[object] = set()

    def __call__(self, event: str, **fields: object) -> None:
        """See `wire.env.env.Probe`."""
        address = fields.get("address")
        if event == "client.connection_lost":
            self._lost.add(address)
            click.echo(f"lost the connection to {address}; reconnecting", err=True)
        elif event == "client.connected" and address in self._lost:
            self._lost.discard(address)
            click.echo(f"reconnected to {address}", err=True)


Result = TypeVar("Result")
_GRACE_S = 1.0
"""Seconds that a command has after a signal, such as for releasing messages."""


def ask(broker: str, call: Callable[[Client], Awaitable[Result]]) -> Result:
    """Connect, run `call` with the client, and return its result.

    Ctrl-C cancels `call`. (Python would raise `KeyboardInterrupt` at any line, also within a step
    that must be completed.)

    Raises:
        click.exceptions.Exit: A signal ended the call.
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
    """Ask for confirmation on the terminal.

    Raises:
        click.UsageError: Standard input is not a terminal.
        click.Abort: The answer is no.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("confirmation needed: standard input is not a terminal; add --yes")
    click.confirm(question, abort=True, err=True)
