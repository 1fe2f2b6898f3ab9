"""The connection of a command to its brokers."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import click

from client.address import parse_addresses
from client.client import Client, connect
from wire.errors import ConfigError
from wire.real_env import real_env

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
    async with connect(broker, env=env, client_name=_CLIENT_NAME) as client:
        yield client


class _Notices:
    """Tells people of broken connections."""

    def __init__(self) -> None:
        self._lost: set[object] = set()

    def __call__(self, event: str, **fields: object) -> None:
        """See `wire.env.Probe`."""
        address = fields.get("address")
        if event == "client.connection_lost":
            self._lost.add(address)
            click.echo(f"the connection to {address} broke; trying again", err=True)
        elif event == "client.connected" and address in self._lost:
            self._lost.discard(address)
            click.echo(f"connected to {address} again", err=True)
