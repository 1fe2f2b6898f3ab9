"""Client that deletes records, alters settings and adds partitions while other clients work."""

from collections.abc import Awaitable, Callable
from typing import final

import trio

from tests.simulation.broker.partition_growth import Growth
from tests.simulation.broker.plans import Fault, alteration
from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.run_history import RunHistory
from tests.simulation.machine.broker_host import HOST, PORT, TOPIC
from tests.simulation.machine.process import Process
from tidelog.client.admin.admin import Admin
from tidelog.client.client import connect
from tidelog.wire.errors import OffsetOutOfRangeError, TidelogError

_LAST_DEED = Fault(0.0, "alter_topic", 0.0, 0.0)
_DELETES_ALL = 0.25


async def administer(
    process: Process, broker: str, work: Callable[[Admin], Awaitable[None]]
) -> None:
    """Run the work of an administrator's client; reconnect with another client if one fails."""
    while True:
        try:
            async with connect(broker, env=process.env, request_timeout=PATIENCE_S) as client:
                await work(client.admin)
                return
        except TidelogError:
            await trio.sleep(BACKOFF_S)


@final
class Administrator:
    """Execute commands in order, each once, and read the state again after each.

    When it is told to stop, it alters the topic until one alteration is acknowledged.
    """

    def __init__(
        self,
        commands: list[Fault],
        run_history: RunHistory,
        sometimes: Sometimes,
        *,
        growth: Growth,
    ) -> None:
        """Take commands from `commands`, to which the run appends; `growth` has the partitions."""
        self.should_stop = False
        self._commands = commands
        self._run_history = run_history
        self._sometimes = sometimes
        self._growth = growth

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        await administer(process, f"{HOST}:{PORT}", self._work)

    async def _work(self, admin: Admin) -> None:
        while not self.should_stop:
            if self._commands:
                await self._do(admin, self._commands.pop(0))
            await self.look(admin)
            await trio.sleep(BACKOFF_S)
        await self._alter(admin, _LAST_DEED)
        await self.look(admin)

    async def look(self, admin: Admin) -> None:
        """Add the settings in force to the run history."""
        asked_at = trio.current_time()
        (topic,) = await admin.describe_topics([TOPIC])
        self._run_history.settings_seen(topic.config, asked_at)
        self._growth.seen(len(topic.partitions), asked_at)

    async def _do(self, admin: Admin, command: Fault) -> None:
        if command.kind == "alter_topic":
            await self._alter(admin, command)
        elif command.kind == "add_partitions":
            await self._growth.add(admin, command.dice)
        else:
            await self._delete_records(admin, command)

    async def _alter(self, admin: Admin, command: Fault) -> None:
        changes = alteration(command)
        asked_at = trio.current_time()
        self._run_history.altering(changes, asked_at)
        try:
            await admin.alter_topic(TOPIC, set=changes)
        except TidelogError:
            self._sometimes.reached("alteration unknown")
            # The request was repeated until now. It may be on the disk of a broker that shows it
            # only after its next start.
            self._run_history.altering(changes, trio.current_time())
            raise
        self._sometimes.reached("topic altered")
        self._run_history.altered(changes, asked_at)

    async def _delete_records(self, admin: Admin, command: Fault) -> None:
        asked_at = trio.current_time()
        (topic,) = await admin.describe_topics([TOPIC])
        partitions = topic.partitions
        chosen = partitions[int(command.dice * 1000) % len(partitions)]
        start, high_watermark = chosen.log_start_offset, chosen.high_watermark
        before_offset = None
        if command.dice >= _DELETES_ALL:
            before_offset = start + int((high_watermark - start) * (command.dice - _DELETES_ALL))
        self._run_history.deleting(chosen.partition, before_offset)
        try:
            await admin.delete_records(TOPIC, chosen.partition, before_offset)
        except OffsetOutOfRangeError:
            return  # The end was lost meanwhile; `HighWatermarkRises` says whether it may be.
        except TidelogError:
            self._sometimes.reached("deletion unknown")
            raise
        self._sometimes.reached("records deleted")
        end = high_watermark if before_offset is None else before_offset
        self._run_history.deleted(chosen.partition, end, asked_at)
