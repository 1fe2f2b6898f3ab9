"""Start and end of a front in a process."""

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import tidelog
from tests.gateway.sqs.http_client import HttpClient
from tidelog.client.client import Client
from tidelog.gateway.sqs.front_runner import FrontRunner
from tidelog.gateway.sqs.http.front_server import FrontServer
from tidelog.gateway.sqs.listen_address import ListenAddress
from tidelog.gateway.sqs.server import FrontConfig
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.errors import AuthenticationFailedError, ConfigError, ConnectionLostError

OPEN = FrontConfig(ListenAddress("127.0.0.1", 0), checks_signatures=False)


def on_free_port() -> FrontConfig:
    """Return settings with a port without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return OPEN._replace(listen=ListenAddress(*bound.getsockname()))


def runner_of(
    failures: list[Exception],
    address: str,
    started: list[FrontServer],
    *,
    config: FrontConfig = OPEN,
) -> FrontRunner:
    """Return a runner whose client fails so before it connects."""

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Client, None]:
        if failures:
            raise failures.pop(0)
        async with tidelog.connect(address) as client:
            yield client

    return FrontRunner(
        connect, config, waits_for=(ConnectionLostError,), on_start=started.append, env=real_env()
    )


async def test_a_front_waits_for_the_brokers(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    started, ending = list[FrontServer](), trio.Event()
    failures: list[Exception] = [ConnectionLostError("refused"), ConnectionLostError("refused")]
    caplog.set_level("INFO")
    async with tidelog.open_broker(tmp_path) as broker:
        nursery.start_soon(runner_of(failures, broker.address, started).run_until, ending)
        while not started:
            await wait_all_tasks_blocked()
        async with HttpClient.connected(started[0].address[1]) as http:
            assert (await http.get("/health")).status == 200
            ending.set()

    assert caplog.text.count("sqs_front_waits reason=refused") == 1


async def test_requests_wait_for_the_brokers_and_probes_get_the_reason(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    config, ending, is_up = on_free_port(), trio.Event(), trio.Event()
    port = config.listen.port
    failures: list[Exception] = [ConnectionLostError("refused")]
    async with tidelog.open_broker(tmp_path) as broker:

        @asynccontextmanager
        async def connect() -> AsyncGenerator[Client, None]:
            if failures:
                raise failures.pop()
            await is_up.wait()
            async with tidelog.connect(broker.address) as client:
                yield client

        runner = FrontRunner(
            connect,
            config,
            waits_for=(ConnectionLostError,),
            on_start=lambda _: None,
            env=real_env(),
        )
        nursery.start_soon(runner.run_until, ending)
        await wait_all_tasks_blocked()
        async with HttpClient.connected(port) as http, HttpClient.connected(port) as waiting:
            await waiting.send("ListQueues")
            health, ready = await http.get("/health"), await http.get("/ready")
            other = runner_of([], broker.address, [], config=config)
            with pytest.raises(ConfigError, match="is another front running there"):
                await other.run_until(ending)
            is_up.set()
            listed = await waiting.reply()
            later = await http.get("/ready")
            ending.set()

    assert (health.status, ready.status, later.status) == (200, 503, 200)
    assert json.loads(ready.body) == {"ready": False, "reason": "refused"}
    assert (listed.status, json.loads(listed.body)) == (200, {})


async def test_a_front_without_brokers_answers_at_its_end(nursery: trio.Nursery) -> None:
    config, ending = on_free_port(), trio.Event()
    runner = runner_of([ConnectionLostError("refused")], "127.0.0.1:1", [], config=config)
    nursery.start_soon(runner.run_until, ending)
    await wait_all_tasks_blocked()
    async with HttpClient.connected(config.listen.port) as http:
        await http.send("ListQueues")
        await wait_all_tasks_blocked()
        ending.set()
        reply = await http.reply()

    assert reply.status == 503
    assert json.loads(reply.body)["message"] == "The front cannot serve yet: refused"


async def test_a_front_ends_for_a_reason_that_no_wait_removes() -> None:
    runner = runner_of([AuthenticationFailedError("no such user")], "127.0.0.1:1", [])

    with pytest.raises(AuthenticationFailedError, match="no such user"):
        await runner.run_until(trio.Event())


async def test_a_wrong_address_is_refused_before_a_broker_is_there() -> None:
    address = ListenAddress("192.0.2.1", 9324)
    config = OPEN._replace(listen=address, checks_signatures=True)
    runner = FrontRunner(
        lambda: tidelog.connect("127.0.0.1:1"),
        config,
        waits_for=(ConnectionLostError,),
        on_start=lambda _: None,
        env=real_env(),
    )

    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:9324 for SQS"):
        await runner.run_until(trio.Event())


async def test_a_start_ends_with_the_process(nursery: trio.Nursery) -> None:
    connecting, ending = trio.Event(), trio.Event()

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Client, None]:
        connecting.set()
        await trio.Event().wait()
        async with tidelog.connect() as client:
            yield client

    runner = FrontRunner(connect, OPEN, waits_for=(), on_start=lambda _: None, env=real_env())
    nursery.start_soon(runner.run_until, ending)
    await connecting.wait()
    ending.set()
