"""The process of the SQS front: client, callers, actions and HTTP server together.

Shell.
"""

import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from tidelog.client.client import Client
from tidelog.gateway.sqs.callers import Callers, UnsignedCallers
from tidelog.gateway.sqs.front import Front
from tidelog.gateway.sqs.http.front_server import FrontLimits, FrontServer
from tidelog.gateway.sqs.listen_address import DEFAULT_PORT, ListenAddress
from tidelog.gateway.sqs.metrics import ACCEPTED, OPEN_CONNECTIONS, REFUSED, USERS, FrontMetrics
from tidelog.gateway.sqs.pages import FrontPages
from tidelog.gateway.sqs.settings import FrontSettings
from tidelog.gateway.sqs.signed_callers import SignedCallers
from tidelog.wire.env.env import Env, Listener
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.errors import ConfigError
from tidelog.wire.metrics.metric import Family, single


class FrontConfig(NamedTuple):
    """Settings of a front."""

    listen: ListenAddress = ListenAddress("127.0.0.1", DEFAULT_PORT)
    checks_signatures: bool = True
    """Whether requests need a signature by an access key; without, only this machine is served."""
    settings: FrontSettings = FrontSettings()
    limits: FrontLimits = FrontLimits()


@asynccontextmanager
async def open_front(
    client: Client, config: FrontConfig | None = None, *, env: Env | None = None
) -> AsyncGenerator[FrontServer, None]:
    """Serve SQS over `client` while the block runs; then finish the requests under way.

    If cancelled, the front stops as in a crash: acknowledged messages are in the log.

    Raises:
        ConfigError: The front cannot listen on the address, or must not without signatures.
    """
    config, env = config or FrontConfig(), env or real_env()
    listener = await listen_for(env, config)
    metrics = FrontMetrics()

    def families() -> list[Family]:
        return [
            *metrics.families(),
            single(OPEN_CONNECTIONS, server.connection_count),
            single(ACCEPTED, server.accepted_count),
            single(REFUSED, server.refused_count),
            single(USERS, callers.user_count),
        ]

    async with trio.open_nursery() as nursery:
        address = str(ListenAddress(*listener.address))
        callers: Callers = UnsignedCallers(client, config.settings, address=address)
        if config.checks_signatures:
            callers = SignedCallers(client, config.settings, nursery, address=address, env=env)
        front = Front(
            callers,
            metrics,
            pages=FrontPages(client, families, lambda: server.is_draining).page_of,
            clock=loop_clock(),
            random=env.random,
        )
        server = FrontServer(env, listener, answer=front.answer, limits=config.limits)
        nursery.start_soon(server.run)
        yield server
        await server.drain()
        nursery.cancel_scope.cancel()


def check_listen(config: FrontConfig) -> None:
    """Check that a front serves other machines only with signatures.

    Raises:
        ConfigError: It would do so without; one line says what to do.
    """
    address = config.listen
    if not (config.checks_signatures or address.is_local):
        raise ConfigError(
            f"cannot serve SQS on {address} without signatures: other machines reach that address;"
            " listen on 127.0.0.1, or create access keys with"
            " `tidelog access-key create user:NAME` and leave out --no-auth"
            " (of a broker: sqs_authentication=required)"
        )


async def listen_for(env: Env, config: FrontConfig) -> Listener:
    """Listen on the address of a front.

    Raises:
        ConfigError: It is not possible, or not safe; one line says why and what to do.
    """
    check_listen(config)
    address = config.listen
    try:
        return await env.network.listen(address.host, address.port)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        advice = "is another front running there? " if is_taken else ""
        raise ConfigError(
            f"cannot listen on {address} for SQS: {error.strerror or error};"
            f" {advice}choose another address"
        ) from error
