"""Ends by signals of commands and programs: real processes, and what the next one gets."""

import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

import tidelog
from tests.paths import ROOT
from tests.system.integration.conftest import shared_broker
from tests.system.integration.processes import (
    DEADLINE_S,
    TIDELOG,
    environment,
    serving,
)

SIGTERM: Final = signal.SIGTERM
PROGRAM: Final = (sys.executable, "-m", "tests.system.integration.stopped_program")


@pytest.fixture(scope="module")
def broker_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a broker whose groups begin at once, and wait for lost members for ever."""
    variables = environment(
        TIDELOG_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
        TIDELOG_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS="500",
        TIDELOG_GROUP_CONSUMER_SESSION_TIMEOUT_MS="3600000",
    )
    with shared_broker(tmp_path_factory.mktemp("signals"), variables) as address:
        yield address


@asynccontextmanager
async def running(address: str, *words: str) -> AsyncGenerator[trio.Process, None]:
    """Run a program until the block ends."""
    with trio.fail_after(DEADLINE_S):
        process = await trio.lowlevel.open_process(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment(TIDELOG_BROKER=address),
        )
        try:
            yield process
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


async def lines_of(process: trio.Process, count: int) -> list[bytes]:
    assert process.stdout is not None
    content = b""
    while content.count(b"\n") < count:
        chunk = await process.stdout.receive_some()
        assert chunk, f"the output ended with {content!r}"
        content += bytes(chunk)
    return content.splitlines()


async def status_after(process: trio.Process, number: signal.Signals) -> int:
    """Send a signal; return the exit status."""
    process.send_signal(number)
    return await process.wait()


async def wait_caught(process: trio.Process, number: signal.Signals, *, is_caught: bool) -> None:
    """Wait until a process handles a signal, or leaves it to the system."""
    while True:
        status = await trio.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        (caught,) = (line for line in status.splitlines() if line.startswith("SigCgt:"))
        if bool(int(caught.split()[1], 16) >> (number - 1) & 1) is is_caught:
            return
        await trio.sleep(0.01)


async def fill(address: str, topic: str, values: list[bytes]) -> None:
    async with tidelog.connect(address) as client:
        await client.admin.create_topic(topic)
        async with client.producer() as producer:
            await producer.send_many(topic, values)


async def append(address: str, topic: str, value: bytes) -> None:
    async with tidelog.connect(address) as client, client.producer() as producer:
        await producer.send(topic, value)


def consume(topic: str, *words: str) -> list[str]:
    return [*TIDELOG, "consume", topic, "--group", topic, "--from", "beginning", *words]


async def committed(address: str, group: str) -> tuple[int, int | None]:
    """Return the number of members of a group, and its committed offset."""
    async with tidelog.connect(address) as client:
        found = await client.admin.describe_group(group)
    return len(found.members), found.partitions[0].offset


async def test_the_next_member_starts_at_once_and_gets_no_record_again(
    broker_address: str, topic: str
) -> None:
    await fill(broker_address, topic, [b"%d" % n for n in range(7)])

    async with running(broker_address, *consume(topic)) as member:
        assert await lines_of(member, 7) == [b"%d" % n for n in range(7)]
        assert await status_after(member, SIGTERM) == 128 + SIGTERM

    await append(broker_address, topic, b"new")
    async with (
        tidelog.connect(broker_address) as client,
        client.consumer(topic, group_id=topic, auto_offset_reset="earliest") as consumer,
    ):
        assert (await anext(aiter(consumer))).value == b"new"


@pytest.mark.parametrize(("number", "words"), [(signal.SIGINT, []), (SIGTERM, ["--max", "9"])])
async def test_a_member_that_gets_a_signal_commits_and_leaves(
    broker_address: str, topic: str, number: signal.Signals, *, words: list[str]
) -> None:
    await fill(broker_address, topic, [b"%d" % n for n in range(7)])

    async with running(broker_address, *consume(topic, *words)) as member:
        await lines_of(member, 7)
        assert await status_after(member, number) == 128 + number

    assert await committed(broker_address, topic) == (0, 7)


async def test_a_member_whose_output_blocks_commits_only_what_it_has_printed(
    broker_address: str, topic: str
) -> None:
    await fill(broker_address, topic, [b"first"])

    async with running(broker_address, *consume(topic)) as member:
        assert await lines_of(member, 1) == [b"first"]
        await append(broker_address, topic, b"x" * 1_000_000)
        assert member.stdout is not None
        await member.stdout.receive_some(1)  # It has begun to write; the rest waits.
        assert await status_after(member, SIGTERM) == 128 + SIGTERM

    assert await committed(broker_address, topic) == (0, 1)


async def test_a_second_signal_ends_a_member_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await fill(broker.address, "orders", [b"first"])
        async with running(broker.address, *consume("orders")) as member:
            await lines_of(member, 1)
            broker.signal(signal.SIGSTOP)  # It confirms neither a commit nor the leave.
            member.send_signal(SIGTERM)
            await wait_caught(member, SIGTERM, is_caught=False)
            assert await status_after(member, SIGTERM) == -SIGTERM
        broker.signal(signal.SIGCONT)


@pytest.mark.parametrize(
    "words",
    [
        ["queue", "receive", "{q}", "--wait", "1h"],
        ["alerts", "--watch"],
        ["queue", "redrive", "{q}", "--wait"],
        ["produce", "{q}"],
        ["queue", "send", "{q}"],
        ["consume", "{q}"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
async def test_a_command_that_waits_ends_with_the_status_of_the_signal(
    broker_address: str, topic: str, words: list[str]
) -> None:
    async with tidelog.connect(broker_address) as client:
        await client.admin.create_queue(topic)

    command = [word.format(q=topic) for word in words]
    async with running(broker_address, *TIDELOG, *command) as process:
        await wait_caught(process, SIGTERM, is_caught=True)
        status = await status_after(process, SIGTERM)

    assert status == 128 + SIGTERM


async def wait_counts(client: tidelog.Client, name: str, expected: tuple[int, int]) -> None:
    """Wait until so many messages are visible, and so many in flight."""
    while True:
        (found,) = await client.queue(name).counts()
        if (found.visible, found.in_flight) == expected:
            return
        await trio.sleep(0.01)


@pytest.mark.parametrize("way", ["blocking-worker", "asyncio-worker", "workers"])
async def test_a_worker_finishes_what_it_has_and_returns_the_rest(
    broker_address: str, topic: str, way: str
) -> None:
    async with tidelog.connect(broker_address) as client:
        await client.admin.create_queue(topic)
        queue = client.queue(topic)
        await queue.send_batch([b"%d" % n for n in range(20)])

        async with running(broker_address, *PROGRAM, way, broker_address, topic) as worker:
            begun = await lines_of(worker, 2)
            worker.send_signal(SIGTERM)
            await wait_counts(client, topic, (18, 2))
            assert worker.poll() is None
            assert worker.stdin is not None
            await worker.stdin.send_all(b"..")
            assert await worker.wait() == 128 + SIGTERM

            await wait_counts(client, topic, (18, 0))
        remaining = await queue.receive(20, wait=5)

    assert {message.receive_count for message in remaining} == {1}
    assert not {message.value for message in remaining} & set(begun)


async def test_a_second_signal_ends_a_worker_at_once(broker_address: str, topic: str) -> None:
    async with tidelog.connect(broker_address) as client:
        await client.admin.create_queue(topic)
        await client.queue(topic).send(b"0")

    words = [*PROGRAM, "blocking-worker", broker_address, topic]
    async with running(broker_address, *words) as worker:
        await lines_of(worker, 1)
        worker.send_signal(SIGTERM)
        await wait_caught(worker, SIGTERM, is_caught=False)
        assert await status_after(worker, SIGTERM) == -SIGTERM


@pytest.mark.parametrize("way", ["consumer", "blocking-consumer"])
async def test_a_consumer_of_a_program_leaves_its_group_at_a_signal(
    broker_address: str, topic: str, way: str
) -> None:
    await fill(broker_address, topic, [b"first", b"second"])

    async with running(broker_address, *PROGRAM, way, broker_address, topic) as consumer:
        assert await lines_of(consumer, 2) == [b"first", b"second"]
        assert await status_after(consumer, SIGTERM) == 128 + SIGTERM

    assert await committed(broker_address, topic) == (0, 2)
