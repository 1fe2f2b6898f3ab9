"""Two users at a broker in a process of its own: one floods it, and the other one is served."""

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final, final

import trio

import tidelog
from tests.paths import ROOT
from tests.system.integration.processes import environment, serving

CONNECTION_COUNT: Final = 200
REQUEST_COUNT: Final = 200
THROTTLED_MS: Final = 1_000
"""Time of a burst of 8 requests that only a throttled client sees: 200 connections share 400/s."""
TOPIC: Final = "orders"


@final
class Flood:
    """The output of a flooding client."""

    def __init__(self, output: trio.abc.ReceiveStream) -> None:
        self.took_ms: list[float] = []
        """Times of its bursts, one for each hundred requests."""
        self._output = output
        self._rest = b""

    async def next_hundred(self) -> None:
        """Wait until a hundred more of its requests are acknowledged."""
        while b"\n" not in self._rest:
            chunk = await self._output.receive_some()
            assert chunk, "the flood has ended"
            self._rest += bytes(chunk)
        line, _, self._rest = self._rest.partition(b"\n")
        self.took_ms.append(float(line))


@asynccontextmanager
async def flooding(address: str, token: str) -> AsyncGenerator[Flood]:
    """Flood a broker over many connections, until the end of the block."""
    program = [sys.executable, "-m", "tests.system.integration.flooding_client"]
    process = await trio.lowlevel.open_process(
        [*program, address, TOPIC, str(CONNECTION_COUNT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdin.send_all(token.encode() + b"\n")
        yield Flood(process.stdout)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def tokens_of(address: str, *users: str) -> list[str]:
    """Create users and a topic; return a token of each user."""
    async with tidelog.connect(address) as admin:
        await admin.admin.create_topic(TOPIC, 1, config={"durability": "replicated"})
        for user in users:
            await admin.security.create_user(user)
        return [await admin.security.create_token(user) for user in users]


async def times_of(producer: tidelog.Producer, flood: Flood) -> list[float]:
    """Return the milliseconds of requests, each of which comes with a hundred of the flood."""
    took_ms: list[float] = []
    await flood.next_hundred()
    for _ in range(REQUEST_COUNT):
        await flood.next_hundred()
        began_at = trio.current_time()
        await producer.send(TOPIC, b"quiet")
        took_ms.append((trio.current_time() - began_at) * 1000)
    return sorted(took_ms)


async def test_a_user_is_served_at_once_beside_one_with_a_hundred_times_its_requests(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker:
        quiet_token, flood_token = await tokens_of(broker.address, "quiet", "flood")
        async with (
            flooding(broker.address, flood_token) as flood,
            tidelog.connect(broker.address, token=quiet_token) as client,
            client.producer(linger=0) as producer,
        ):
            took_ms = await times_of(producer, flood)

            # Without turns, both would wait for all requests of the flood.
            p99_ms = took_ms[int(len(took_ms) * 0.99)]
            assert p99_ms <= median(flood.took_ms), (took_ms, sorted(flood.took_ms))
            assert median(took_ms) <= median(flood.took_ms) / 4


async def test_a_user_beyond_its_quota_waits_and_another_one_does_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        quiet_token, flood_token = await tokens_of(broker.address, "quiet", "flood")
        async with (
            flooding(broker.address, flood_token) as flood,
            tidelog.connect(broker.address) as admin,
            tidelog.connect(broker.address, token=quiet_token) as client,
            client.producer(linger=0) as producer,
        ):
            await flood.next_hundred()
            await admin.security.alter_quotas("user:flood", set={"requests_per_s": "400"})
            while not flood.took_ms or flood.took_ms[-1] < THROTTLED_MS:
                await flood.next_hundred()  # Those that it had printed before are skipped, too.
            flood.took_ms.clear()

            took_ms: list[float] = []
            while len(flood.took_ms) < 8:  # Two seconds and more.
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(flood.next_hundred)
                    began_at = trio.current_time()
                    await producer.send(TOPIC, b"quiet")
                    took_ms.append((trio.current_time() - began_at) * 1000)

            assert max(took_ms) <= median(flood.took_ms)
            assert client.statistics().connections.throttled_s == {}
