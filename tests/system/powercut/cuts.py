"""Runs of a broker that end with a power cut, each on the disk of the one before.

In a run, the machine starts on the disk after the last cut. All records that were acknowledged
before that cut are read and compared; then writers and a reader continue, until the next power cut.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import cast, final

import trio

import tidelog
from tests.system.histories.clients import RecordedReader, RecordedWriter
from tests.system.histories.examination import examine
from tests.system.histories.recorder import Recorder, acknowledged_count, operations_of
from tests.system.integration.processes import TIDELOG, BrokerProcess
from tests.system.powercut.machine import DISK_BYTES, Machine
from tests.system.powercut.power_switch import aim
from tests.system.powercut.volatile_disk import Survival, VolatileDisk
from tidelog.wire.errors import TidelogError

TOPIC = "cuts"
PARTITION_COUNT = 3
_TOPIC_SETTINGS = {"segment_bytes": "32KiB", "index_interval_bytes": "1KiB"}
_WRITER_COUNT = 5
_EARLY_SHARE = 0.25
"""Fraction of the switches that are armed before the broker starts."""
_RUNS_OF_A_DISK = 10
_ANY_MOMENT_S = 2.5
"""Seconds until the power is cut, unless the aimed moment comes first."""
_FALSE_ALARMS = {"log_damaged", "log_note", "log_status_changed"}
"""Events of a broker about a damaged disk. This disk is never damaged."""


@dataclass(slots=True)
class Cut:
    """One power cut, and its findings."""

    moment: str
    survival: Survival
    unflushed_bytes: int = 0
    acknowledged_count: int = 0
    """Number of records of all runs of the disk that were acknowledged before."""
    problems: list[str] = field(default_factory=list[str])
    lost_count: int = 0


@dataclass(slots=True)
class CutsReport:
    """Result of many power cuts."""

    cuts: list[Cut] = field(default_factory=list[Cut])
    acknowledged_count: int = 0
    seconds: float = 0.0

    @property
    def lost_count(self) -> int:
        """Number of lost acknowledged records."""
        return sum(cut.lost_count for cut in self.cuts)

    @property
    def problems(self) -> list[str]:
        """All problems."""
        return [problem for cut in self.cuts for problem in cut.problems]

    def summary(self) -> str:
        """Return a line with the figures."""
        bad = sum(bool(cut.problems) for cut in self.cuts)
        moments = Counter(cut.moment for cut in self.cuts)
        shown = ", ".join(f"{count} at {moment}" for moment, count in sorted(moments.items()))
        return (
            f"{len(self.cuts)} power cuts, {self.acknowledged_count} records acknowledged,"
            f" {self.lost_count} lost, {bad} cuts with problems,"
            f" {self.seconds / max(len(self.cuts), 1):.1f} s for each ({shown})"
        )


@final
class PowerCuts:
    """Cuts the power of one machine after the other."""

    def __init__(
        self,
        workshop: Path,
        random: Random,
        *,
        show: Callable[[str], None],
        program: Sequence[str] = TIDELOG,
    ) -> None:
        """Work in `workshop`; pass every cut to `show`."""
        self.report = CutsReport()
        self._workshop = workshop
        self._random = random
        self._show = show
        self._program = program
        self._recorder = Recorder(trio.current_time)
        self._run_count = 0

    async def run(self, count: int) -> CutsReport:
        """Cut the power `count` times."""
        began = perf_counter()
        while (left := count - len(self.report.cuts)) > 0:
            await self._wear_out_a_disk(min(left, _RUNS_OF_A_DISK))
        self.report.seconds = perf_counter() - began
        return self.report

    async def _wear_out_a_disk(self, count: int) -> None:
        """Run `count` times on a disk that was new, and check the last cut in one more run."""
        self._recorder = Recorder(trio.current_time)
        run = _Run(VolatileDisk(DISK_BYTES), self._recorder, self._workshop, random=self._random)
        before: Cut | None = None
        for number in range(count + 1):
            await self._run_to_cut(run, before, is_last=number == count)
            if number == count or (before is not None and before.problems):
                break
            before = run.cut
            self.report.cuts.append(before)
            self._recorder.forget_after(run.event_count)
            disk = VolatileDisk(content=run.medium)
            run = _Run(disk, self._recorder, self._workshop, random=self._random)
        assert before is not None
        self.report.acknowledged_count += before.acknowledged_count

    async def _run_to_cut(self, run: "_Run", before: Cut | None, *, is_last: bool) -> None:
        """Check the state after the cut `before`, and unless it has problems, run to the next."""
        self._run_count += 1
        is_new = before is None
        # On a disk with a topic, a cut may also come during recovery.
        run.machine.switch.is_armed = not is_new and self._random.random() < _EARLY_SHARE
        try:
            async with (
                run.machine.running(is_new=is_new, program=self._program) as broker,
                tidelog.connect(broker.address) as client,
            ):
                if before is None:
                    await client.admin.create_topic(TOPIC, PARTITION_COUNT, config=_TOPIC_SETTINGS)
                else:
                    await self._compare(before, broker, client)
                if not is_last and (before is None or not before.problems):
                    await self._write(client, run)
        except* (AssertionError, trio.TooSlowError, TidelogError) as group:
            if before is None:
                raise
            before.problems.append(f"the broker does not start: {_first(group)!r}")
            before.lost_count = before.acknowledged_count
        if before is not None:
            self._show(_line(len(self.report.cuts), before))

    async def _compare(self, cut: Cut, broker: BrokerProcess, client: tidelog.Client) -> None:
        """Record the problems after a cut."""
        cut.problems += [
            f"the broker says: {event}"
            for event in broker.events
            if event["event"] in _FALSE_ALARMS
        ]
        reader = RecordedReader(f"inspector {self._run_count}", TOPIC, self._recorder)
        try:
            await reader.read_to_end(client)
        except TidelogError as error:
            cut.problems.append(f"not all can be read: {error!r}")
            cut.lost_count = cut.acknowledged_count
            return
        operations = operations_of(self._recorder.events)
        problems, cut.lost_count = examine(operations)
        cut.problems += problems

    async def _write(self, client: tidelog.Client, run: "_Run") -> None:
        """Write and read until the power is cut, at the aimed moment or any other."""
        async with client.producer() as producer, trio.open_nursery() as nursery:
            writers = [
                RecordedWriter(
                    f"{self._run_count}.{number}",
                    TOPIC,
                    self._recorder,
                    random=self._random,
                    partition_count=PARTITION_COUNT,
                )
                for number in range(_WRITER_COUNT)
            ]
            for writer in writers:
                nursery.start_soon(writer.run, producer)
            reader = RecordedReader(f"reader {self._run_count}", TOPIC, self._recorder)
            nursery.start_soon(reader.follow, client)
            await writers[0].acknowledged.wait()
            run.machine.switch.is_armed = True
            nursery.start_soon(run.cut_at_any_moment)
            await run.is_cut.wait()
            nursery.cancel_scope.cancel()


@final
class _Run:
    """A machine, and its disk after the power cut.

    Every event is recorded within its request: all acknowledgements in the first `event_count`
    events came before the cut.
    """

    def __init__(
        self, disk: VolatileDisk, recorder: Recorder, workshop: Path, *, random: Random
    ) -> None:
        switch = aim(random, self._cut)
        self.machine = Machine(disk, switch, workshop)
        self.is_cut = trio.Event()
        self.event_count = 0
        self.medium = bytearray()
        self.cut = Cut(switch.moment.value, random.choice(list(Survival)))
        self._recorder = recorder
        self._random = Random(random.random())  # For the thread of the disk.
        self._trio = trio.lowlevel.current_trio_token()

    async def cut_at_any_moment(self) -> None:
        """Cut the power after a while, unless it is cut before."""
        await trio.sleep(_ANY_MOMENT_S)
        if not self.machine.switch.is_pulled:
            self.cut.moment = "any moment"
        self.machine.cut_power()

    def _cut(self) -> None:
        self.event_count = len(self._recorder.events)
        disk = self.machine.disk
        self.cut.unflushed_bytes = disk.unflushed_bytes
        self.medium = disk.after_power_cut(self.cut.survival, self._random)
        self.cut.acknowledged_count = acknowledged_count(
            operations_of(self._recorder.events[: self.event_count])
        )
        self._trio.run_sync_soon(self.is_cut.set)


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group, or of the groups in it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _line(number: int, cut: Cut) -> str:
    verdict = f"{cut.lost_count} LOST" if cut.problems else "all there"
    return (
        f"{number:>4}  {cut.acknowledged_count:>6} acknowledged, {verdict}; at {cut.moment};"
        f" {cut.unflushed_bytes >> 10} KiB unflushed, of which survive: {cut.survival.value}"
    )
