"""Reading the records under a partition of a queue, in a task where that takes time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar, final

import trio

from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.queues.dead_letter_record import Record, records_in
from tidelog.broker.queues.partition.batch_cache import Batch
from tidelog.broker.queues.partition.source_records import Gathered, Reading, SourceRecords
from tidelog.logstore.segments.log_slice import LogSlice, corrupt
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.errors import CorruptRecordError, LogOfflineError, WireFormatError
from tidelog.wire.messages.queues import ReceivedRun, Run, SeenRun
from tidelog.wire.protocol.write_buffer import FileRegion

Result = TypeVar("Result")

_READ_BYTES_MAX: Final = 8 << 20
_COPIED_BYTES_MAX: Final = 256 << 10
"""Of one partition, while its receive waits to be committed."""


@final
class UndecodableRecordsError(WireFormatError):
    """Nobody can decode some records; their producer sent them so, with the right checksum."""

    def __init__(self, reason: WireFormatError, next_offset: int) -> None:
        """Name the offset behind them; they begin with the first record that was asked for."""
        super().__init__(f"the records cannot be decoded: {reason}")
        self.next_offset = next_offset

    def count_in(self, runs: Iterable[Run]) -> int:
        """Return how many of the messages that were asked for are among them."""
        return sum(max(0, min(count, self.next_offset - first)) for first, count in runs)


@final
class RecordReader:
    """Carries out what `SourceRecords` has to read."""

    def __init__(self, records: SourceRecords, reader: SliceReader) -> None:
        """Load what is not in memory with `reader`."""
        self._records = records
        self._reader = reader

    def feed(self, core: QueuePartition, is_enough: Callable[[], bool]) -> Reading[None]:
        """Tell a queue of records; see `SourceRecords.feed`."""
        config = core.config
        needs_all = bool(config.priority_weights) or config.fair_delivery
        return self._records.feed(
            core,
            decodes_all=config.is_fifo or config.fair_delivery,
            is_enough=(lambda: False) if needs_all else is_enough,
        )

    async def read(self, runs: Sequence[SeenRun | ReceivedRun], *, bytes_max: int) -> Gathered:
        """Find the batches of messages; see `SourceRecords.gather`."""
        return await self.drive(self._records.gather(runs, bytes_max=bytes_max))

    async def records(self, runs: Sequence[Run]) -> list[Record]:
        """Return messages, ascending, from the first one on as many as fit into some memory.

        Raises:
            CorruptRecordError: The first one cannot be read.
            UndecodableRecordsError: It can be read, but not be decoded.
            BrokerError: Reading failed.
        """
        if not runs:
            return []
        wanted_runs = [ReceivedRun(first, count, 0, 0) for first, count in runs]
        gathered = await self.read(wanted_runs, bytes_max=_READ_BYTES_MAX)
        if not gathered.taken or gathered.taken[0][0] != runs[0][0]:
            raise gathered.damage or corrupt(runs[0][0], runs[0][0] + 1)
        wanted: list[int] = []
        for (first, count), (taken_first, taken_count) in zip(runs, gathered.taken, strict=False):
            if taken_first != first:
                break
            wanted.extend(range(first, first + taken_count))
            if taken_count < count:
                break
        records: list[Record] = []
        for batch in gathered.batches:
            inside = [at for at in wanted if batch.base_offset <= at < batch.next_offset]
            try:
                records.extend(self._decoded(batch, inside))
            except WireFormatError as error:
                if records:
                    break
                raise UndecodableRecordsError(error, batch.next_offset) from error
        return records

    def _decoded(self, batch: Batch, offsets: list[int]) -> Iterator[Record]:
        """Yield some records of a batch.

        Raises:
            CorruptRecordError: It is damaged.
            LogOfflineError: It cannot be read.
            WireFormatError: Nobody can decode it.
        """
        try:
            data = batch.file.read_at(batch.position, batch.size)
        except OSError as error:
            raise self._records.partition().reading_failed(error) from error
        header = parse_header(data)
        if header is None:
            raise corrupt(batch.base_offset, batch.next_offset)
        yield from records_in(data, header, offsets)

    async def drive(self, work: Reading[Result]) -> Result:
        """Carry out work, loading the slices that it asks for.

        Raises:
            BrokerError: Of the work, or it is not served here any more.
        """
        try:
            cold = next(work)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        return await self.resume(work, cold)

    async def resume(self, work: Reading[Result], cold: LogSlice | None) -> Result:
        """Carry out work, loading the slices that it asks for, beginning with this one.

        Raises:
            BrokerError: Of the work, or it is not served here any more.
        """
        try:
            while True:
                if cold is None:
                    await trio.lowlevel.checkpoint()
                    cold = work.send(None)
                    continue
                try:
                    loaded = await self._reader.load(self._records.partition(), cold)
                except (CorruptRecordError, LogOfflineError) as error:
                    cold = work.throw(error)
                else:
                    cold = work.send(loaded)
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def pieces(self, batches: list[Batch]) -> list[bytes | FileRegion]:
        """Return what is sent of batches that were found.

        Raises:
            LogOfflineError: They cannot be read.
        """
        partition = self._records.partition()
        pieces: list[bytes | FileRegion] = []
        room = _COPIED_BYTES_MAX
        for part in _joined(batches):
            piece = self._reader.piece(partition, part, room)
            if isinstance(piece, bytes):
                room -= len(piece)
            pieces.append(piece)
        return pieces


def _joined(batches: list[Batch]) -> Iterator[LogSlice]:
    """Yield slices of batches that lie one behind the other."""
    at = 0
    while at < len(batches):
        first = batches[at]
        end = first.position + first.size
        at += 1
        while at < len(batches):
            after = batches[at]
            if after.file is not first.file or after.position != end:
                break
            end += after.size
            at += 1
        yield LogSlice(
            first.file,
            first.position,
            end - first.position,
            offset=first.base_offset,
            end_offset=batches[at - 1].next_offset,
            is_trusted=True,
        )
