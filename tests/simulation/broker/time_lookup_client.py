"""Client that looks up timestamps after all other clients have ended."""

from collections.abc import AsyncGenerator, Mapping
from typing import final

import trio

from tests.simulation.broker.plans import ENDLESS
from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S
from tests.simulation.checkers.run_history import LookedUp, RunHistory
from tests.simulation.machine.broker_host import HOST, PORT, TOPIC
from tests.simulation.machine.process import Process
from tidelog.client.admin.admin import Admin
from tidelog.client.client import connect
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import TidelogError

_TIMES_MAX = 12
_Times = dict[int, list[tuple[int, int]]]
"""By partition, offset and timestamp of every record."""


@final
class TimeLookupClient:
    """Reads all records and checks the offset of each time lookup; no other client may write.

    First it disables retention, so that no record is deleted meanwhile.
    """

    def __init__(self, run_history: RunHistory, *, is_compacted: bool = False) -> None:
        """Add the results to `run_history`."""
        self._run_history = run_history
        self._kept = ENDLESS | {"cleanup_policy": "delete"} if is_compacted else ENDLESS
        self._is_compacted = is_compacted
        # A second read must not wait long behind requests that wait for records.
        self._wait_s = 0.05 if is_compacted else 0.5

    async def run(self, process: Process) -> None:
        """Look up some of the timestamps, and the moments after them."""
        while True:
            try:
                async with connect(
                    f"{HOST}:{PORT}", env=process.env, request_timeout=PATIENCE_S
                ) as client:
                    await self._keep_all(client.admin)
                    async with client.consumer(
                        TOPIC, auto_offset_reset="earliest", fetch_max_wait=self._wait_s
                    ) as consumer:
                        await self._look_up(consumer)
                    return
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _keep_all(self, admin: Admin) -> None:
        asked_at = trio.current_time()
        self._run_history.altering(self._kept, asked_at)
        await admin.alter_topic(TOPIC, set=self._kept)
        self._run_history.altered(self._kept, asked_at)

    async def _look_up(self, consumer: Consumer) -> None:
        ends = await consumer.end_offsets()
        times = await self._times(consumer)
        found = [each async for each in self._answers(consumer, times, ends)]
        while self._is_compacted:
            # A compaction round that ran may have removed a record in between.
            await consumer.seek_to_beginning()
            again = await self._times(consumer)
            if again == times:
                break
            times = again
            found = [each async for each in self._answers(consumer, times, ends)]
        for looked_up in found:
            self._run_history.looked_up(looked_up)

    async def _times(self, consumer: Consumer) -> _Times:
        ends = await consumer.end_offsets()
        times: _Times = {at.partition: [] for at in ends}
        async for batch in consumer.batches(ends):
            records = [(record.offset, record.timestamp_ms) for record in batch.records()]
            times[batch.partition] += records
        return times

    async def _answers(
        self, consumer: Consumer, times: _Times, ends: Mapping[TopicPartition, int]
    ) -> AsyncGenerator[LookedUp]:
        known = sorted({time for records in times.values() for _, time in records})
        for time in known[:: max(1, -(-len(known) // _TIMES_MAX))]:
            for wanted in (time, time + 1):
                await consumer.seek_to_time(wanted)
                for at, end in ends.items():
                    found = consumer.position(at.topic, at.partition)
                    yield LookedUp(at.partition, wanted, found, times[at.partition], end)
