"""The command `tidelog sqs`, as a process of its own."""

import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

import msgspec
import pytest
import trio

import tidelog
from tests.gateway.sqs.http_client import HttpClient
from tests.paths import ROOT
from tidelog.cli import main


class _Running(NamedTuple):
    process: trio.Process
    port: int


@asynccontextmanager
async def running(broker: str, *options: str) -> AsyncGenerator[_Running, None]:
    """Run a front on a free port, without signatures."""
    command = [sys.executable, "-m", "tidelog", "sqs", "-b", broker, "--listen", "127.0.0.1:0"]
    process = await trio.lowlevel.open_process(
        [*command, "--no-auth", *options], stderr=PIPE, cwd=ROOT
    )
    try:
        yield _Running(process, await _port_of(process))
    finally:
        process.kill()
        await process.wait()


async def _port_of(process: trio.Process) -> int:
    assert process.stderr is not None
    log = ""
    async for part in process.stderr:
        log += bytes(part).decode()
        found = re.search(r"serves SQS on http://127\.0\.0\.1:(\d+) ", log)
        if found:
            return int(found[1])
    raise AssertionError(f"the front ended: {log}")


async def test_a_signal_answers_what_waits_and_ends_the_process(tmp_path: Path) -> None:
    async with (
        tidelog.open_broker(tmp_path) as broker,
        running(broker.address) as front,
        HttpClient.connected(front.port) as idle,
        HttpClient.connected(front.port) as waiting,
    ):
        created = await idle.ask("CreateQueue", QueueName="jobs")
        url = msgspec.json.decode(created.body)["QueueUrl"]
        await waiting.send("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)
        while (await idle.get("/metrics")).value_of("tidelog_sqs_receives_under_way") == 0:
            pass
        assert (await idle.get("/ready")).status == 200

        front.process.send_signal(signal.SIGTERM)
        reply = await waiting.reply()
        assert reply.status == 200
        assert msgspec.json.decode(reply.body) == {}
        assert reply.headers["connection"] == "close"
        assert await front.process.wait() == 0


def test_a_wrong_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sqs", "--listen", "a:b:c"]) == 1

    assert "'a:b:c' is not an address; write HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--account", "1"], ["--region", "Mars"], ["--public-url", "sqs.example.com"]]
)
def test_a_wrong_option_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sqs", *options]) == 2

    assert "is not of the form" in capsys.readouterr().err
