"""The process of the SQS front: client, callers, actions and HTTP server together.

Shell.
"""

import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, final

import trio

from tidelog.client.client import Client
from tidelog.gateway.sqs.callers import Callers, UnsignedCallers, WaitingCallers
from tidelog.gateway.sqs.front import Front
from tidelog.gateway.sqs.http.front_server import FrontLimits, FrontServer
from tidelog.gateway.sqs.listen_address import DEFAULT_PORT, ListenAddress
from tidelog.gateway.sqs.metrics import ACCEPTED, OPEN_CONNECTIONS, REFUSED, USERS, FrontMetrics
from tidelog.gateway.sqs.pages import FrontPages
from tidelog.gateway.sqs.settings import FrontSettings
from tidelog.gateway.sqs.signature import SERVICE_NAME
from tidelog.gateway.sqs.signed_callers import SignedCallers
from tidelog.wire.env.env import Env, Listener
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    InvalidRequestError,
)
from tidelog.wire.metrics.metric import Family, single
from tidelog.wire.security.access_key import SigningScope


class FrontConfig(NamedTuple):
    """Settings of a front."""

    listen: ListenAddress = ListenAddress("127.0.0.1", DEFAULT_PORT)
    checks_signatures: bool = True
    """Whether requests need a signature by an access key; without, only this machine is served."""
    settings: FrontSettings = FrontSettings()
    limits: FrontLimits = FrontLimits()


@final
class FrontProcess:
    """A front that listens: without a client, requests wait for one."""

    def __init__(self, listener: Listener, config: FrontConfig, env: Env) -> None:
        """Use `open_process`."""
        self._config = config
        self._env = env
        self._metrics = FrontMetrics()
        self._client: Client | None = None
        self.waiting = WaitingCallers()
        """The callers until `serving`."""
        self._front = Front(
            self.waiting,
            self._metrics,
            pages=FrontPages(self._families, self._check, lambda: self.server.is_draining).page_of,
            clock=loop_clock(),
            random=env.random,
        )
        self.server = FrontServer(env, listener, answer=self._front.answer, limits=config.limits)
        """The server of HTTP."""

    @asynccontextmanager
    async def serving(self, client: Client) -> AsyncGenerator[None, None]:
        """Serve SQS over `client` while the block runs; then finish the requests under way."""
        settings, address = self._config.settings, str(ListenAddress(*self.server.address))
        async with trio.open_nursery() as nursery:
            callers: Callers = UnsignedCallers(client, settings, address=address)
            if self._config.checks_signatures:
                callers = SignedCallers(client, settings, nursery, address=address, env=self._env)
            self._client, self._front.callers = client, callers
            self.waiting.end(callers)
            yield
            await self.server.drain()
            if isinstance(callers, SignedCallers):
                await callers.close()
            nursery.cancel_scope.cancel()

    async def drain(self) -> None:
        """Finish the requests that wait for a client, if the front has never had one."""
        if not self.server.is_draining:
            self.waiting.end(None)
            await self.server.drain()

    async def _check(self) -> None:
        """Check that the front can serve.

        Raises:
            TidelogError: One line says why it cannot.
        """
        if self._client is None:
            raise ConnectionLostError(self.waiting.reason)
        await check_client(self._client, self._config)

    def _families(self) -> list[Family]:
        server = self.server
        return [
            *self._metrics.families(),
            single(OPEN_CONNECTIONS, server.connection_count),
            single(ACCEPTED, server.accepted_count),
            single(REFUSED, server.refused_count),
            single(USERS, self._front.callers.user_count),
            *(() if self._client is None else self._client.statistics().families()),
        ]


@asynccontextmanager
async def open_process(config: FrontConfig, *, env: Env) -> AsyncGenerator[FrontProcess, None]:
    """Listen for SQS while the block runs; `FrontProcess.serving` gives the front a client.

    Raises:
        ConfigError: The front cannot listen on the address, or must not without signatures.
    """
    listener = await listen_for(env, config)
    async with trio.open_nursery() as nursery:
        process = FrontProcess(listener, config, env)
        nursery.start_soon(process.server.run)
        yield process
        await process.drain()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_front(
    client: Client, config: FrontConfig | None = None, *, env: Env | None = None
) -> AsyncGenerator[FrontServer, None]:
    """Serve SQS over `client` while the block runs; then finish the requests under way.

    If cancelled, the front stops as in a crash: acknowledged messages are in the log.

    Raises:
        ConfigError: The front cannot listen on the address, or must not without signatures.
    """
    async with (
        open_process(config or FrontConfig(), env=env or real_env()) as process,
        process.serving(client),
    ):
        yield process.server


async def check_client(client: Client, config: FrontConfig) -> None:
    """Check that a broker serves the client of a front, and lets it act for users if need be.

    Raises:
        AuthenticationFailedError: A broker gives signing keys over TLS only.
        NotAuthorizedError: The front needs the action `impersonate`.
        TidelogError: No broker answers now.
    """
    if not config.checks_signatures:
        with suppress(BrokerError):  # It answers.
            await client.admin.list_queues(limit=1)
        return
    # A broker checks the rights of the front before it refuses a request that no user has signed.
    scope = SigningScope("20150830", config.settings.region, SERVICE_NAME)
    with suppress(InvalidRequestError):
        await client.security.get_signing_key("", scope, signed=b"", signature=bytes(32))


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
