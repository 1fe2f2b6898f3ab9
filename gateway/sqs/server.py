"""The process of the SQS front: client, callers, actions and HTTP server together.

Shell.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from tidelog.client.client import Client
from tidelog.gateway.sqs.callers import Callers
from tidelog.gateway.sqs.front import Front
from tidelog.gateway.sqs.http.front_server import FrontLimits, FrontServer
from tidelog.gateway.sqs.metrics import ACCEPTED, OPEN_CONNECTIONS, REFUSED, FrontMetrics
from tidelog.gateway.sqs.pages import FrontPages
from tidelog.gateway.sqs.settings import FrontSettings
from tidelog.wire.env.env import Env
from tidelog.wire.env.loop_clock import loop_clock
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.metrics.metric import Family, single


class FrontConfig(NamedTuple):
    """Settings of a front."""

    host: str = "127.0.0.1"
    port: int = 9324
    """0 takes a free port."""
    settings: FrontSettings = FrontSettings()
    limits: FrontLimits = FrontLimits()


@asynccontextmanager
async def open_front(
    client: Client, config: FrontConfig | None = None, *, env: Env | None = None
) -> AsyncGenerator[FrontServer, None]:
    """Serve SQS over `client` while the block runs; then finish the requests under way.

    If cancelled, the front stops as in a crash: acknowledged messages are in the log.

    Raises:
        OSError: The front cannot listen on the address.
    """
    config, env = config or FrontConfig(), env or real_env()
    listener = await env.network.listen(config.host, config.port)
    host, port = listener.address
    metrics = FrontMetrics()

    def families() -> list[Family]:
        return [
            *metrics.families(),
            single(OPEN_CONNECTIONS, server.connection_count),
            single(ACCEPTED, server.accepted_count),
            single(REFUSED, server.refused_count),
        ]

    front = Front(
        Callers(client, config.settings, address=f"{host}:{port}"),
        metrics,
        pages=FrontPages(client, families, lambda: server.is_draining).page_of,
        clock=loop_clock(),
        random=env.random,
    )
    server = FrontServer(env, listener, answer=front.answer, limits=config.limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        yield server
        await server.drain()
        nursery.cancel_scope.cancel()
