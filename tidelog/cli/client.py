"""The client connection of a command."""

import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar, cast

import click
import trio

from tidelog.cli.advice import advice_for_user
from tidelog.cli.connected import broker_address, given_profile, tls_settings
from tidelog.cli.signals import on_signal
from tidelog.cli.usage import first_of
from tidelog.cli.waiting import Waiting
from tidelog.client.client import Client, connect
from tidelog.client.config import ClientConfig
from tidelog.client.security.settings import connection_settings
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.env.real.user_files import UserFiles

_CLIENT_NAME = "tidelog-cli"
_LOOK_S = 0.25
"""Seconds between two looks at what a client waits for."""


@asynccontextmanager
async def open_client(broker: str, *, is_quiet: bool = False) -> AsyncGenerator[Client, None]:
    """Connect to the brokers of `broker` while the block runs.

    The client reconnects by itself. A line on standard error reports each lost connection, and one
    says what the client waits for after two seconds without a result, unless `is_quiet`.
    """
    # Without a handler, Python would print warnings as bare text.
    logging.getLogger("tidelog").addHandler(logging.NullHandler())
    given = ClientConfig(client_id=_CLIENT_NAME, **tls_settings())
    config = connection_settings(given, UserFiles(), profile=given_profile()).config
    waiting = Waiting(broker, now=trio.current_time(), connect_timeout=config.connect_timeout)
    env = real_env() if is_quiet else replace(real_env(), probe=Notices(waiting))
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        if not is_quiet:
            nursery.start_soon(_show_waiting, waiting)
        try:
            async with connect(broker, config=config, env=env) as client:
                yield client
        except Exception as error:  # noqa: BLE001  (raised again below)
            # Raised outside of the nursery, so that the error does not arrive in a group.
            failure = error
            if config.user or config.token or config.tls_certificate:
                advice = advice_for_user(first_of(error))
                if advice is not None:
                    first_of(error).add_note(advice)
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _show_waiting(waiting: Waiting) -> None:
    """Print what the client waits for, until cancelled."""
    while True:
        await trio.sleep(_LOOK_S)
        line = waiting.due_line(trio.current_time())
        if line is not None:
            click.echo(line, err=True)


class Notices:
    """Reports lost connections on standard error, and reasons to wait to `waiting`."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._lost: set[object] = set()

    def __call__(self, event: str, **fields: object) -> None:
        """See `wire.env.env.Probe`."""
        address = fields.get("address")
        if event == "client.connection_lost":
            self._lost.add(address)
            click.echo(f"lost the connection to {address}; reconnecting", err=True)
        elif event == "client.connected":
            self._waiting.connected()
            if address in self._lost:
                self._lost.discard(address)
                click.echo(f"reconnected to {address}", err=True)
        elif event == "client.request_waits":
            request_id, reason = fields["request_id"], str(fields["reason"])
            deadline = cast("float", fields["deadline"])
            now = trio.current_time()
            self._waiting.began(request_id, reason, deadline=deadline, now=now)
        elif event == "client.request_ended":
            self._waiting.ended(fields["request_id"])
        elif event == "client.blocked":
            self._waiting.blocked(str(fields["reason"]), now=trio.current_time())


Result = TypeVar("Result")
_GRACE_S = 1.0
"""Seconds that a command has after a signal, such as for releasing messages."""


def ask(
    call: Callable[[Client], Awaitable[Result]],
    *,
    broker: str | None = None,
    is_quiet: bool = False,
    grace_s: float = _GRACE_S,
) -> Result:
    """Connect, run `call` with the client, and return its result; see `open_client`.

    SIGTERM and Ctrl-C cancel `call`, and the client is there for `grace_s` seconds more. (Python
    would raise `KeyboardInterrupt` at any line, also within a step that must be completed.) Without
    `broker`, the command line names the brokers.

    Raises:
        WrongUse: The environment names no address.
        click.exceptions.Exit: A signal ended the call.
    """
    addresses = broker_address() if broker is None else broker

    async def ask_client() -> Result:
        asking, closing = trio.CancelScope(), trio.CancelScope()

        def end() -> None:
            asking.cancel()
            closing.deadline = trio.current_time() + grace_s

        async with on_signal(end) as interruption:
            with closing:
                async with open_client(addresses, is_quiet=is_quiet) as client:
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
