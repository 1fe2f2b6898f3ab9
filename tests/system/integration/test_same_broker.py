"""Tests that simulated runs use the broker of `tidelog serve`, except for the seams."""

import inspect
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import trio

import tests.simulation.machine.broker_host
import tidelog.broker.server
import tidelog.embedded
from tests.cluster_secret import SECRET
from tests.paths import ROOT
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tests.system.integration.processes import DEADLINE_S, environment, serving
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.client.client import Client, connect
from tidelog.wire.errors import TidelogError

SERVER_PACKAGES = {
    f"tidelog.{room}"
    for room in ("broker", "coordinator", "queue_layer", "isr", "logstore", "wire")
}
REAL_SEAMS = {
    "tidelog.logstore.disk.os_disk",
    "tidelog.wire.env.real",
    "tidelog.wire.env.real.process_usage",
    "tidelog.wire.env.real.real_env",
    "tidelog.wire.env.real.tcp",
}
HOST, PORT = "broker", 8433
SMALL_SEGMENTS = {"segment_bytes": "4KiB", "index_interval_bytes": "1KiB"}
LEFT_OUT = {"topic_id", "timestamp_ms"}

Crash = Callable[[], Awaitable[None]]
"""Kills the broker, and returns when it runs again."""


def server_modules(imported: str) -> set[str]:
    """Return the modules of the server's packages that an import loads in a new process."""
    result = subprocess.run(
        [sys.executable, "-c", f"import sys, {imported}\nprint(*sys.modules)"],
        cwd=ROOT,
        env=environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        name for name in result.stdout.split() if ".".join(name.split(".")[:2]) in SERVER_PACKAGES
    }


def test_both_brokers_load_the_same_modules_except_for_the_real_seams() -> None:
    real = server_modules("tidelog.cli.serve.serve")
    simulated = server_modules("tests.simulation.machine.broker_host")

    assert len(real) > 100
    assert real - simulated == REAL_SEAMS
    assert simulated <= real


def test_both_open_the_broker_by_one_function_with_settings_env_and_disk() -> None:
    starters = [vars(tests.simulation.machine.broker_host), vars(tidelog.embedded)]
    opened = [starters[0]["open_broker"], starters[1]["open_broker_in"]]

    assert opened == [tidelog.broker.server.open_broker] * 2
    assert list(inspect.signature(tidelog.broker.server.open_broker).parameters) == [
        "config",
        "env",
        "disk",
        "secret",
        "sources",  # The origin of the settings, for describe_config only.
        "master_source",  # Reads the master keys.
        "inputs",  # Reads other files at the start.
    ]


class Conversation:
    """Requests and replies of a client, without the details that differ in every broker."""

    def __init__(self, client: Client, crash: Crash) -> None:
        self.heard: list[object] = []
        self._client = client
        self._crash = crash

    async def take_place(self) -> None:
        admin = self._client.admin
        await self._hear(lambda: admin.create_topic("t", 2, config=SMALL_SEGMENTS))
        await self._hear(lambda: admin.create_topic("t", 2))
        await self._hear(lambda: admin.create_topic("t2", 1, config={"no_such": "setting"}))
        async with self._client.producer() as producer:
            for first in range(0, 100, 20):
                values = [b"%d" % number * 20 for number in range(first, first + 20)]
                await self._hear(partial(producer.send_many, "t", values, partition=0))
            await self._describe()
            await self._crash_and_read()
            await self._hear(lambda: admin.delete_records("t", 0, 30))
            await self._crash_and_read()
            await self._hear(lambda: producer.send_many("t", [b"after"] * 3, partition=1))
        await self._hear(lambda: self._read(first_offset=7))
        await self._hear(lambda: admin.delete_records("t", 0, 1000))
        await self._hear(lambda: admin.list_offsets("t", "earliest"))
        await self._hear(lambda: admin.list_offsets("t", "latest"))
        await self._hear(lambda: admin.alter_topic("t", set={"retention_ms": 60_000}))
        await self._crash_and_read()
        await self._describe()
        await self._hear(lambda: admin.delete_topic("t"))
        await self._hear(admin.list_topics)

    async def _hear(self, say: Callable[[], Awaitable[object]]) -> None:
        try:
            heard = await say()
        except TidelogError as error:
            heard = error
        self.heard.append(_comparable(heard))

    async def _describe(self) -> None:
        await self._hear(self._client.admin.describe_topics)

    async def _crash_and_read(self) -> None:
        await self._crash()
        await self._hear(lambda: self._read(first_offset=None))

    async def _read(self, *, first_offset: int | None) -> list[tuple[int, int, bytes | None]]:
        async with self._client.consumer("t", auto_offset_reset="earliest") as consumer:
            ends = await consumer.end_offsets()
            if first_offset is not None:
                consumer.seek("t", 0, first_offset)
            return sorted(
                [
                    (record.partition, record.offset, record.value)
                    async for batch in consumer.batches(ends)
                    for record in batch
                ]
            )


def _comparable(heard: object) -> object:
    """Return a reply as plain data, without identities and times."""
    if isinstance(heard, TidelogError):
        return (type(heard).__name__, re.sub(r"[0-9a-f]{32}", "ID", str(heard)))
    if isinstance(heard, (list, tuple)):
        return [_comparable(item) for item in cast("Sequence[object]", heard)]
    if isinstance(heard, dict):
        items = cast("dict[object, object]", heard).items()
        return {str(key): _comparable(value) for key, value in items}
    if isinstance(heard, msgspec.Struct):
        fields = {name: getattr(heard, name) for name in heard.__struct_fields__}
        return {name: _comparable(value) for name, value in fields.items() if name not in LEFT_OUT}
    return heard


def talk_to_a_simulated_broker() -> list[object]:
    async def serve(process: Process) -> None:
        config = BrokerConfig(listen=f"{HOST}:{PORT}")
        async with tidelog.broker.server.open_broker(
            config, process.env, process.disk, secret=SECRET
        ):
            await trio.sleep_forever()

    async def main(world: World) -> list[object]:
        machine, clients = world.add_node(HOST), world.add_node("client")
        heard: list[object] = []

        async def crash() -> None:
            machine.kill()
            machine.start(serve)

        async def talk(process: Process) -> None:
            await trio.sleep(1)  # Simulated: until the broker listens.
            async with connect(f"{HOST}:{PORT}", env=process.env) as client:
                conversation = Conversation(client, crash)
                await conversation.take_place()
                heard.extend(conversation.heard)

        machine.start(serve)
        await clients.start(talk).ended.wait()
        return heard

    return Simulation(1).run(main)


async def talk_to_a_real_broker(data_dir: Path) -> list[object]:
    crash_wanted, runs_again = trio.Event(), trio.Event()
    address = "127.0.0.1:0"
    crash_count = 0

    async def keep_running(task_status: trio.TaskStatus[None]) -> None:
        nonlocal address, crash_wanted, crash_count
        while True:
            async with serving(data_dir, listen=address) as process:
                address = process.address
                if crash_count:
                    runs_again.set()
                else:
                    task_status.started()
                await crash_wanted.wait()
                crash_wanted = trio.Event()
                crash_count += 1
                process.signal(signal.SIGKILL)
                await process.wait_ended()

    async def crash() -> None:
        nonlocal runs_again
        runs_again = trio.Event()
        crash_wanted.set()
        await runs_again.wait()

    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_running)
            async with connect(address) as client:
                conversation = Conversation(client, crash)
                await conversation.take_place()
            nursery.cancel_scope.cancel()
    assert crash_count == 3
    return conversation.heard


def test_a_client_cannot_tell_a_simulated_broker_from_a_real_one(tmp_path: Path) -> None:
    simulated = talk_to_a_simulated_broker()
    real = trio.run(talk_to_a_real_broker, tmp_path)

    assert len(real) > 20
    assert simulated == real
