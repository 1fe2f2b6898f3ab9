"""Real disks without space: a full file system, and a thin disk whose pool is exhausted.

The first fails at the write. The second fails at the sync, and then the page cache still shows
bytes that never reached the disk, to the next process too.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import final

import trio

import tidelog
from tests.simulation.checkers.history import Poll
from tests.system.histories.clients import RecordedReader, RecordedWriter
from tests.system.histories.examination import examine
from tests.system.histories.recorder import Recorder, acknowledged_count, operations_of
from tests.system.integration.processes import TIDELOG, BrokerProcess, serving
from tests.system.powercut.machine import DISK_BYTES, Machine, run
from tests.system.powercut.power_switch import Moment, PowerSwitch
from tests.system.powercut.volatile_disk import Survival, VolatileDisk
from tidelog.wire.errors import TidelogError

_TOPIC = "room"
_DELIVERY_TIMEOUT_S = 1.0

Entry = tuple[str, int, str]
"""A key, an offset, a value."""


@final
class BadDisk:
    """One machine with one writer, and its replies while the disk has no space."""

    def __init__(self, workshop: Path, random: Random) -> None:
        """Work in `workshop`, on a new disk."""
        self.machine = _machine(VolatileDisk(DISK_BYTES), workshop)
        self.recorder = Recorder(trio.current_time)
        self.problems: list[str] = []
        self._workshop = workshop
        self._random = random
        self._name_count = 0

    def new_writer(self) -> RecordedWriter:
        """Return a writer with a name of its own."""
        self._name_count += 1
        return RecordedWriter(
            f"w{self._name_count}", _TOPIC, self.recorder, random=self._random, partition_count=1
        )

    async def read(self, client: tidelog.Client) -> set[Entry]:
        """Read all readable records; return them."""
        first = len(self.recorder.events)
        self._name_count += 1
        reader = RecordedReader(f"r{self._name_count}", _TOPIC, self.recorder)
        try:
            await reader.read_to_end(client)
        except TidelogError as error:
            self.problems.append(f"not all can be read: {error!r}")
        return {
            (key, offset, value)
            for event in self.recorder.events[first:]
            for step in event.steps
            if isinstance(step, Poll)
            for key, entries in step.values.items()
            for offset, value in entries
        }

    async def look_after_power_cut(self) -> set[Entry]:
        """Cut the power, start on the remaining disk, and return the readable records."""
        medium = self.machine.disk.after_power_cut(Survival.NONE, self._random)
        machine = _machine(VolatileDisk(content=medium), self._workshop)
        async with (
            machine.running(is_new=False) as broker,
            tidelog.connect(broker.address) as client,
        ):
            return await self.read(client)

    async def expect_status(self, broker: BrokerProcess, *expected: str) -> None:
        """Wait until the log of a broker reports these states of the partition, in order."""

        def statuses() -> list[str]:
            return [
                event["status"] for event in broker.events if event["event"] == "log_status_changed"
            ]

        await broker.wait_until(lambda: len(statuses()) >= len(expected))
        if statuses() != [*expected]:
            self.problems.append(f"the partition became {statuses()}, it should be {expected}")

    def verdict(self) -> list[str]:
        """Return all problems."""
        return [*self.problems, *examine(operations_of(self.recorder.events))[0]]


async def exhaust_pool(
    workshop: Path,
    random: Random,
    *,
    refusal: int,
    show: Callable[[str], None],
    program: Sequence[str] = TIDELOG,
) -> list[str]:
    """Let syncs fail with the error `refusal`; return problems.

    The log must go offline, and afterwards serve no record that is not on the disk.
    """
    bad = BadDisk(workshop, random)
    writer = bad.new_writer()
    async with bad.machine.mounted(is_new=True) as root:
        async with (
            serving(root / "data", program=program) as broker,
            tidelog.connect(broker.address) as client,
            client.producer() as producer,
        ):
            await client.admin.create_topic(_TOPIC)
            for _ in range(20):
                assert await writer.write(producer) is None
            bad.machine.disk.refusal = refusal
            while (told := await writer.write(producer)) is None:
                pass
            await bad.expect_status(broker, "offline")
        bad.machine.disk.refusal = None
        # The page cache still has the records of the failed sync: this is the same mount.
        async with (
            serving(root / "data", program=program) as broker,
            tidelog.connect(broker.address) as client,
        ):
            served = await bad.read(client)
    on_disk = await bad.look_after_power_cut()
    bad.problems += [f"served, but not on the disk: {entry}"[:200] for entry in served - on_disk]
    show(
        f"thin disk: {acknowledged_count(operations_of(bad.recorder.events))} records acknowledged,"
        f" then {told!r}; {len(served)} served after the restart, {len(on_disk)} on the disk"
    )
    return bad.verdict()


async def fill_disk(workshop: Path, random: Random, *, show: Callable[[str], None]) -> list[str]:
    """Fill the file system and free space again, without a restart; return problems."""
    bad = BadDisk(workshop, random)
    writer = bad.new_writer()
    async with bad.machine.mounted(is_new=True) as root:
        ballast = root / "ballast"
        async with (
            serving(root / "data") as broker,
            tidelog.connect(broker.address) as client,
            client.producer(delivery_timeout=_DELIVERY_TIMEOUT_S) as producer,
        ):
            await client.admin.create_topic(_TOPIC)
            for _ in range(20):
                assert await writer.write(producer) is None
            await trio.run_process(
                ["dd", "if=/dev/zero", f"of={ballast}", "bs=4k", "status=none"],
                check=False,
                capture_stderr=True,
            )
            while (told := await writer.write(producer)) is None:
                pass
            await bad.expect_status(broker, "read-only")
            read_count = len(await bad.read(client))
            await run("rm", str(ballast))
            while await writer.write(producer) is not None:
                pass
            await bad.expect_status(broker, "read-only", "online")
    await bad.look_after_power_cut()
    show(
        f"full disk: {told!r}; {read_count} records read meanwhile;"
        f" {acknowledged_count(operations_of(bad.recorder.events))} acknowledged in the end"
    )
    return bad.verdict()


def _machine(disk: VolatileDisk, workshop: Path) -> Machine:
    return Machine(disk, PowerSwitch(Moment.WRITE, lambda: None, number=1), workshop)
