"""Source records of a queue partition: committed records, and the batches of messages.

Shell without tasks: generators yield the slices that must come from the disk, and their driver
sends back the loaded ones. So the same code serves records in memory at once, and others in a task.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar, final

import trio

from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.broker.queues.dead_letter_record import DeadLetterRecord, records_in
from tidelog.broker.queues.partition.batch_cache import Batch, BatchCache
from tidelog.broker.queues.partition.gathered import DestroyedRecordsError, Gathered
from tidelog.logstore.disk.disk import File
from tidelog.logstore.segments.batch_scanner import walk_headers
from tidelog.logstore.segments.log_slice import LogSlice, corrupt
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.wire.batch.batch_columns import (
    SMALL_BYTES,
    columns_in_steps,
    decode_columns,
    unpack,
)
from tidelog.wire.batch.older_format import in_format_1, rewritten_length
from tidelog.wire.batch.record_batch import (
    FLAG_QUEUE_FIELDS,
    FLAG_SPARSE,
    HEADER_SIZE,
    BatchHeader,
    Columns,
    parse_header,
)
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import (
    CorruptRecordError,
    LeaderNotAvailableError,
    LogOfflineError,
    WireFormatError,
)
from tidelog.wire.messages.queues import (
    CHUNK_HEADER,
    DELIVER_AT_HEADER,
    PRIORITY_HEADER,
    PeekedRun,
    ReceivedRun,
    Run,
)
from tidelog.wire.transport.write_buffer import FileRegion

Default = TypeVar("Default")
Result = TypeVar("Result")

WITHOUT_LIMIT_BYTES: Final = 1 << 62
"""Limit of a repeated receive: it returns all messages again."""
_STEP_BYTES: Final = 128 << 10
"""Bytes of a log that are searched for new records in one go."""
_STEPS_AT_ONCE: Final = 16
"""Number of steps before other tasks run."""
_BATCHES_AT_ONCE: Final = 800
"""Number of batches in these steps before other tasks run."""
_BEHIND_MAX: Final = 16
"""Number of batches that are read one by one, before more are searched in the log."""
_WINDOW_BYTES: Final = 4 << 10
"""Bytes of a file that are read at once for the headers of these batches."""
_DECODED_FLAGS: Final = FLAG_QUEUE_FIELDS | FLAG_SPARSE
"""Flags of batches that a queue decodes."""
_RECORDS_AT_ONCE: Final = 500
"""Records that are passed to a queue before other tasks run, if their payload is decoded."""
_UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
_TIME_MAX_MS: Final = 1 << 62
_DIGITS_MAX: Final = 20
_READ_BYTES_MAX: Final = 8 << 20
_OPENED_BYTES_MAX: Final = 1 << 20
"""Maximum bytes that one receive decrypts or rewrites, besides one batch."""
_COPIED_BYTES_MAX: Final = 256 << 10
"""Maximum bytes copied for one partition, while its receive waits for the commit."""

_Walked = tuple[int, BatchHeader, int]
"""Position and header of a batch in its file, and the offset after its last record."""


@final
class Unpacking:
    """Decompression of a payload, for a thread."""

    def __init__(self, header: BatchHeader, data: BytesLike) -> None:
        """Take one whole batch."""
        self._header = header
        self._data = data
        self.plain: bytes | memoryview = b""
        """The payload, when it is decompressed."""

    def run(self) -> None:
        """Decompress.

        Raises:
            WireFormatError: The payload is not what the header says.
        """
        self.plain = unpack(self._header, self._data, _UNCOMPRESSED_BYTES_MAX)


@final
class Rewriting:
    """Rewriting of a batch in format version 1, for a thread."""

    def __init__(self, data: BytesLike) -> None:
        """Take one whole plain batch."""
        self.data = data
        """The batch; in format version 1 at the end."""

    def run(self) -> None:
        """Rewrite it; see `in_format_1`."""
        self.data = in_format_1(self.data)


Work = LogSlice | Unpacking | Rewriting | None
"""A slice to load, work for a thread, or a pause."""
Reading = Generator[Work, LogSlice | None, Result]
"""Yields slices to load, and is sent the loaded ones or thrown the error; or yields work for a
thread, and is thrown its error; or yields `None` when other tasks should run first."""


@final
class UndecodableRecordsError(WireFormatError):
    """Records that cannot be decoded; their producer sent them so, with the right checksum."""

    def __init__(self, reason: WireFormatError, next_offset: int) -> None:
        """Name the offset behind them; they begin with the first requested record."""
        super().__init__(f"the records cannot be decoded: {reason}")
        self.next_offset = next_offset

    def count_in(self, runs: Iterable[Run]) -> int:
        """Return how many of the requested messages are among them."""
        return sum(max(0, min(count, self.next_offset - first)) for first, count in runs)


@final
class SourceRecords:
    """The records of one partition, as its queue uses them."""

    def __init__(
        self,
        partitions: ReplicaManager,
        reader: SliceReader,
        topic_id: bytes,
        *,
        number: int,
        needs_all: bool = False,
    ) -> None:
        """Read from the replica in `partitions`, whether or not it is led here.

        `needs_all` says that the order of the queue needs all records, however many messages are
        known.
        """
        self.needs_all = needs_all
        self._partitions = partitions
        self._reader = reader
        self._topic_id = topic_id
        self._number = number
        self._partition: Partition | None = None
        """The replica at the last look: the one of this broker until it is closed."""
        self.damage: CorruptRecordError | None = None
        """Damage for which a FIFO queue gets no more records."""
        self._batch_cache = BatchCache()

    def partition(self) -> Partition:
        """Return the replica.

        Raises:
            LeaderNotAvailableError: There is no replica here at the moment, or it is being
                repaired.
        """
        partition = self._partition
        if partition is None or partition.is_closed:
            partition = self._partitions.replica(self._topic_id, self._number)
            self._partition = partition
        if partition is None or partition.is_held:
            raise LeaderNotAvailableError(
                f"the messages of partition {self._number} cannot be read here at the moment"
            )
        return partition

    def feed(self, core: QueuePartition, is_enough: Callable[[], bool]) -> Reading[None]:
        """Pass records to the queue until it knows all committed ones, or enough.

        Args:
            core: The queue; it may change during a load.
            is_enough: Returns whether to stop before the end; it is not called if the order needs
                all records.

        Raises:
            LogOfflineError: The disk failed.
            LeaderNotAvailableError: This broker has no replica.
        """
        config = core.config
        decodes_all = config.is_fifo or config.fair_delivery
        steps = batch_count = 0
        self.damage = None
        while True:
            partition = self.partition()
            high_watermark = partition.high_watermark
            first = core.state.records_from
            if first >= high_watermark or (not self.needs_all and is_enough()):
                return
            steps += 1
            if steps == _STEPS_AT_ONCE or batch_count >= _BATCHES_AT_ONCE:
                steps = batch_count = 0
                yield None
                continue
            try:
                file, walked = self._behind_known(partition, first)
                if file is None:
                    file, walked = yield from self._read_on(partition, first)
                batch_count += len(walked)
                if core.state.records_from == first:
                    yield from self._feed_batches(
                        core, partition, file, walked=walked, decodes_all=decodes_all
                    )
            except CorruptRecordError as error:
                end = error.detail("next_offset")
                assert end is not None
                if core.config.is_fifo:
                    # They may come before others of their groups: refuse rather than guess.
                    self.damage = error
                    return
                if core.state.records_from == first:
                    # Their contents are unreadable, but they still count as messages.
                    core.state.on_records(first, min(end, high_watermark))
            except OSError as error:
                raise partition.reading_failed(error) from error

    def _behind_known(self, partition: Partition, first: int) -> tuple[File | None, list[_Walked]]:
        """Return batches from an offset on that were appended right behind the last known one.

        This process has written them, as the leader of the known one. Without any, no file. So a
        message that is received soon after its send needs no search in the log.
        """
        walked: list[_Walked] = []
        last = self._batch_cache.last(partition)
        if last is None or last.next_offset != first:
            return None, walked
        file, position = last.file, last.position + last.size
        window, window_at = b"", position
        high_watermark = partition.high_watermark
        while first < high_watermark and len(walked) < _BEHIND_MAX:
            if position + HEADER_SIZE > window_at + len(window):
                if self._reader.is_cold_file(file, position, _WINDOW_BYTES):
                    break
                window_at, window = position, file.read_at(position, _WINDOW_BYTES)
            header = parse_header(window, position - window_at)
            if header is None or header.base_offset != first:
                break  # The next segment has it.
            end = first + header.last_offset_delta + 1
            if end > high_watermark:
                break
            walked.append((position, header, end))
            position, first = position + HEADER_SIZE + header.payload_length, end
        self._know(partition, file, walked)
        return file if walked else None, walked

    def _read_on(self, partition: Partition, first: int) -> Reading[tuple[File, list[_Walked]]]:
        """Find batches from the one with an offset on in the log.

        Raises:
            CorruptRecordError: The first one is damaged.
            LogOfflineError: The disk failed.
        """
        part = partition.log.read(
            first, max_bytes=_STEP_BYTES, high_watermark=partition.high_watermark
        )
        assert part is not None, "the log has a batch below the high watermark"
        was_trusted = part.is_trusted
        if self._reader.is_cold(part):
            part = yield from _loaded(part)
        walked = list(_walk(part))
        if was_trusted:  # Bytes that this process did not write are checked in each read.
            self._know(partition, part.file, walked)
        return part.file, walked

    def _know(self, partition: Partition, file: File, walked: list[_Walked]) -> None:
        """Keep the places of committed batches: most are received soon after."""
        high_watermark = partition.high_watermark
        known: list[Batch] = []
        for position, header, end in walked:
            if end <= high_watermark:
                size = HEADER_SIZE + header.payload_length
                known.append(Batch(header.base_offset, end, file, position, size))
        if known:
            self._batch_cache.add(partition, known)

    def _feed_batches(
        self,
        core: QueuePartition,
        partition: Partition,
        file: File,
        *,
        walked: list[_Walked],
        decodes_all: bool,
    ) -> Reading[None]:
        """Pass the records of batches to a queue; stop early after a batch that took long."""
        delay_ms = core.config.delivery_delay_ms
        is_encrypted = partition.cipher is not None
        high_watermark = partition.high_watermark
        plain_from = core.state.records_from
        offset = plain_from
        fed_count = 0
        for position, header, next_offset in walked:
            if next_offset <= offset:
                continue
            first, end = max(header.base_offset, offset), min(next_offset, high_watermark)
            has_fields = decodes_all or header.flags & _DECODED_FLAGS
            is_gone = is_encrypted and _is_destroyed(partition, header, file, position=position)
            if not has_fields and not delay_ms and not is_gone:
                offset = end
                continue
            if plain_from < offset:
                core.state.on_records(plain_from, offset)
            if offset < first:
                _skip_missing(core, offset, first)
            fed_count += end - first
            if header.has_only_chunks or not header.record_count or is_gone:
                yield from _in_parts(core, first, end, feed=core.state.on_chunks)
            else:
                data: BytesLike | None = None
                if has_fields:
                    stored = file.read_at(position, header.size)
                    header, data = partition.opened(header, stored)  # noqa: PLW2901
                yield from _feed_batch(core, header, data, first=first, end=end)
            is_small = header.uncompressed_length <= SMALL_BYTES and fed_count <= _RECORDS_AT_ONCE
            if not is_small or core.state.records_from != end:
                # Other tasks ran, or should: the file may be gone by now.
                yield None
                return
            plain_from = offset = end
        if plain_from < offset:
            core.state.on_records(plain_from, offset)

    def gather(  # noqa: C901 (one walk over what is asked for)
        self,
        offers: Iterable[ReceivedRun | PeekedRun],
        partition: Partition,
        *,
        max_bytes: int,
        is_older: bool = False,
        passes_damage: bool = True,
    ) -> Reading[Gathered]:
        """Find the batches of messages in a replica, in their order, until there are enough bytes.

        `partition` is the replica of `partition()` now. At least one batch is found if one is
        readable. Damaged messages are left out, with all behind them unless `passes_damage`. A
        client of an older version (`is_older`) gets all batches in format version 1.

        Raises:
            LogOfflineError: The disk failed.
            LeaderNotAvailableError: This broker has no replica.
        """
        found: dict[int, Batch] = {}
        bases: list[int] = []
        gathered = Gathered([], [])
        for run in offers:
            offset, end = run.first_offset, run.first_offset + run.count
            taken_from = offset
            while offset < end:
                place = bisect_right(bases, offset) - 1
                if place >= 0 and offset < found[bases[place]].next_offset:
                    offset = min(end, found[bases[place]].next_offset)
                    continue
                is_opened = is_older or partition.cipher is not None
                room = (_opened_max(max_bytes) if is_opened else max_bytes) - gathered.size
                if room <= 0 and found:
                    break
                try:
                    batches = self._known(partition, offset, end, max_bytes=max(room, 1))
                    if not batches:
                        batches = yield from self._read_batches(offset, end, max(room, 1))
                        partition = self.partition()  # Other tasks may have run.
                    if partition.cipher is not None:
                        batches = self._open(gathered, batches, offset)
                except (CorruptRecordError, DestroyedRecordsError) as error:
                    _add_run(gathered, taken_from, offset)
                    next_offset = min(end, gathered.found_unreadable(offset, error))
                    taken_from = offset = next_offset if passes_damage else offset
                    if passes_damage:
                        continue
                    break
                count = gathered.add(batches, found, max_bytes)
                bases = sorted(found)
                if count:
                    offset = min(end, batches[count - 1].next_offset)
                if count < max(len(batches), 1):
                    break
            _add_run(gathered, taken_from, offset)
            if offset < end:
                gathered.stopped_at = offset
                break
        gathered.batches = [*map(found.__getitem__, bases)]
        return (yield from self._rewritten(gathered)) if is_older else gathered

    def _rewritten(self, gathered: Gathered) -> Reading[Gathered]:
        """Open all batches in format version 1, those with much to unpack in a thread.

        Raises:
            LogOfflineError: The disk failed.
        """
        try:  # All at once: the files may change while others run.
            found = {batch.base_offset: gathered.plain(batch) for batch in gathered.batches}
        except OSError as error:
            raise self.partition().reading_failed(error) from error
        for base_offset, plain in found.items():
            rewriting = Rewriting(plain)
            if rewritten_length(plain) > SMALL_BYTES:
                yield rewriting
            else:
                rewriting.run()
            gathered.opened[base_offset] = rewriting.data
        return gathered

    def _known(self, partition: Partition, first: int, end: int, *, max_bytes: int) -> list[Batch]:
        """Return known batches from the one with an offset on that need no read of the disk."""
        known = self._batch_cache.find(partition, first, end, max_bytes=max_bytes)
        if not known:
            return known
        start, last = known[0], known[-1]
        length = last.position + last.size - start.position
        return [] if self._reader.is_cold_file(start.file, start.position, length) else known

    def _open(self, gathered: Gathered, batches: list[Batch], offset: int) -> list[Batch]:
        """Return the batches up to the first without readable records, opened if they are sealed.

        Raises:
            CorruptRecordError: The seal of the first one is broken.
            DestroyedRecordsError: Its data key was deleted.
            KeyUnavailableError: Its data key cannot be used here.
            LogOfflineError: The disk failed.
        """
        partition = self.partition()
        if partition.cipher is None:
            return batches
        try:
            gathered.open_all(partition, batches, offset)
        except OSError as error:
            raise partition.reading_failed(error) from error
        return [batch for batch in batches if batch.base_offset in gathered.opened]

    def _read_batches(self, first: int, end: int, max_bytes: int) -> Reading[list[Batch]]:
        """Find batches from the one with an offset on, below an end, in the log."""
        partition = self.partition()
        high_watermark = partition.high_watermark
        try:
            part = partition.log.read(first, max_bytes=max_bytes, high_watermark=high_watermark)
            if part is None:
                raise LeaderNotAvailableError(
                    f"offset {first} is above the high watermark that this broker knows"
                )
            if self._reader.is_cold(part):
                part = yield from _loaded(part)
            batches = list(_batches_in(part, first, end))
        except OSError as error:
            raise partition.reading_failed(error) from error
        if not batches or batches[0].base_offset > first:
            next_offset = batches[0].base_offset if batches else first + 1
            raise CorruptRecordError(
                f"records {first} to {next_offset} (exclusive) are missing",
                offset=first,
                next_offset=next_offset,
            )
        return batches

    async def read(
        self,
        runs: Sequence[PeekedRun | ReceivedRun],
        *,
        max_bytes: int,
        is_older: bool = False,
    ) -> Gathered:
        """Find the batches of messages; see `gather`."""
        work = self.gather(runs, self.partition(), max_bytes=max_bytes, is_older=is_older)
        return await self.drive(work)

    async def read_records(self, runs: Sequence[Run]) -> list[DeadLetterRecord]:
        """Return messages, ascending, from the first one on as many as fit into a memory limit.

        Raises:
            CorruptRecordError: The first one cannot be read.
            UndecodableRecordsError: It can be read, but not decoded.
            BrokerError: Reading failed.
        """
        if not runs:
            return []
        wanted_runs = [ReceivedRun(first, count, 0, 0) for first, count in runs]
        gathered = await self.read(wanted_runs, max_bytes=_READ_BYTES_MAX)
        if gathered.destroyed and gathered.destroyed[0][0] == runs[0][0]:
            reason = WireFormatError("their data key was deleted")
            raise UndecodableRecordsError(reason, gathered.destroyed[0][1])
        if not gathered.taken or gathered.taken[0][0] != runs[0][0]:
            raise gathered.damage or corrupt(runs[0][0], runs[0][0] + 1)
        wanted: list[int] = []
        for (first, count), (taken_first, taken_count) in zip(runs, gathered.taken, strict=False):
            if taken_first != first:
                break
            wanted.extend(range(first, first + taken_count))
            if taken_count < count:
                break
        records: list[DeadLetterRecord] = []
        for batch in gathered.batches:
            inside = [at for at in wanted if batch.base_offset <= at < batch.next_offset]
            try:
                opened = gathered.opened.get(batch.base_offset)
                records.extend(self._decoded(batch, inside, opened))
            except WireFormatError as error:
                if records:
                    break
                raise UndecodableRecordsError(error, batch.next_offset) from error
        return records

    def _decoded(
        self, batch: Batch, offsets: list[int], opened: BytesLike | None
    ) -> Iterator[DeadLetterRecord]:
        """Yield some records of a batch.

        Raises:
            CorruptRecordError: The batch is damaged.
            LogOfflineError: The batch cannot be read.
            WireFormatError: The batch cannot be decoded.
        """
        try:
            data = opened or batch.file.read_at(batch.position, batch.size)
        except OSError as error:
            raise self.partition().reading_failed(error) from error
        header = parse_header(data)
        if header is None:
            raise corrupt(batch.base_offset, batch.next_offset)
        yield from records_in(data, header, offsets)

    async def drive(self, work: Reading[Result]) -> Result:
        """Drive a generator, loading the slices that it yields.

        Raises:
            BrokerError: The generator failed, or the partition is not served here any more.
        """
        try:
            cold = next(work)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        return await self.resume(work, cold)

    async def resume(self, work: Reading[Result], cold: Work) -> Result:
        """Drive a generator, loading the slices that it yields, beginning with this one.

        Raises:
            BrokerError: The generator failed, or the partition is not served here any more.
        """
        try:
            while True:
                if cold is None:
                    await trio.lowlevel.checkpoint()
                    cold = work.send(None)
                    continue
                loaded = None
                try:
                    if isinstance(cold, Unpacking | Rewriting):
                        await self._reader.run(cold.run)
                    else:
                        loaded = await self._reader.load(self.partition(), cold)
                except (CorruptRecordError, LogOfflineError, WireFormatError) as error:
                    cold = work.throw(error)
                else:
                    cold = work.send(loaded)
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def pieces(
        self, gathered: Gathered, partition: Partition
    ) -> tuple[int, list[bytes | FileRegion]]:
        """Return the size and the pieces of a reply for batches that were found.

        `partition` is the replica of `partition()` now.

        Raises:
            LogOfflineError: They cannot be read.
        """
        batches = gathered.batches
        if gathered.opened:
            opened = b"".join(gathered.opened[batch.base_offset] for batch in batches)
            return len(opened), [opened]
        pieces: list[bytes | FileRegion] = []
        room, size, place = _COPIED_BYTES_MAX, 0, 0
        while place < len(batches):
            file, position = batches[place].file, batches[place].position
            length = batches[place].size
            place += 1
            while place < len(batches):  # Batches that are contiguous make one piece.
                after = batches[place]
                if after.file is not file or after.position != position + length:
                    break
                length += after.size
                place += 1
            piece = self._reader.piece(partition, file, position, length=length, room_bytes=room)
            if isinstance(piece, bytes):
                room -= length
            size += length
            pieces.append(piece)
        return size, pieces


def _opened_max(max_bytes: int) -> int:
    """Return how many bytes are read if they are decrypted or rewritten."""
    return max_bytes if max_bytes == WITHOUT_LIMIT_BYTES else min(max_bytes, _OPENED_BYTES_MAX)


def _loaded(part: LogSlice) -> Reading[LogSlice]:
    loaded = yield part
    assert loaded is not None, "a yielded slice is sent back loaded"
    return loaded


def _feed_batch(
    core: QueuePartition, header: BatchHeader, data: BytesLike | None, *, first: int, end: int
) -> Reading[None]:
    """Pass records of one batch to a queue, with their fields if the batch was read.

    Another task may have passed some or all of them meanwhile.
    """
    delay_ms = core.config.delivery_delay_ms
    columns = None if data is None else (yield from _columns(header, data))
    if core.state.records_from != first:
        return
    places = None
    if columns is not None and columns.offset_deltas is not None:
        places = {delta: place for place, delta in enumerate(columns.offset_deltas)}

    def feed(start: int, stop: int) -> None:
        fields = None
        if columns is not None:
            fields = [
                _fields_at(header, columns, offset, places=places, delay_ms=delay_ms)
                for offset in range(start, stop)
            ]
        deliver_at_ms = header.max_timestamp_ms + delay_ms if delay_ms and not fields else 0
        core.state.on_records(start, stop, fields, deliver_at_ms=deliver_at_ms)

    yield from _in_parts(core, first, end, feed=feed)


def _in_parts(
    core: QueuePartition, first: int, end: int, *, feed: Callable[[int, int], None]
) -> Reading[None]:
    """Pass a range of records to a queue in parts, unless another task passes them meanwhile."""
    for start in range(first, end, _RECORDS_AT_ONCE):
        if start > first:
            yield None
        if core.state.records_from != start:
            return
        feed(start, min(start + _RECORDS_AT_ONCE, end))


def _columns(header: BatchHeader, data: BytesLike) -> Reading[Columns | None]:
    """Return keys, headers and timestamps of a batch; `None` if it cannot be decoded."""
    try:
        if header.uncompressed_length <= SMALL_BYTES:
            return decode_columns(header, data, uncompressed_length_max=_UNCOMPRESSED_BYTES_MAX)
        unpacking = Unpacking(header, data)
        yield unpacking
        return (yield from columns_in_steps(header, memoryview(unpacking.plain)))
    except WireFormatError:
        return None


def _is_destroyed(partition: Partition, header: BatchHeader, file: File, *, position: int) -> bool:
    """Return whether the data key of a batch was deleted: its records are no messages."""
    cipher = partition.cipher
    if cipher is None or not header.is_sealed or not cipher.has_destroyed_keys:
        return False
    return cipher.is_gone(file.read_at(position, header.size))


def _skip_missing(core: QueuePartition, first: int, end: int) -> None:
    """Pass records to a queue whose batches are missing.

    Raises:
        CorruptRecordError: The queue has an order, which is unknown behind them.
    """
    if core.config.is_fifo:
        raise corrupt(first, end)
    core.state.on_records(first, end)


def _walk(part: LogSlice) -> Iterator[_Walked]:
    end, start_offset = part.position + part.length, part.start_offset
    for position, header in walk_headers(
        part.file, part.position, start_offset=start_offset, end=end
    ):
        yield position, header, header.base_offset + header.last_offset_delta + 1


def _add_run(gathered: Gathered, first: int, end: int) -> None:
    if first < end:
        gathered.taken.append((first, end - first))


def _batches_in(part: LogSlice, first: int, end: int) -> Iterator[Batch]:
    for position, header, next_offset in _walk(part):
        if header.base_offset >= end:
            return
        if next_offset > first:
            yield Batch(header.base_offset, next_offset, part.file, position, header.size)


def _fields_at(
    header: BatchHeader,
    columns: Columns,
    offset: int,
    *,
    places: Mapping[int, int] | None,
    delay_ms: int,
) -> RecordFields:
    """Return the fields of the record at an offset; `places` has the records of a sparse batch."""
    delta = offset - header.base_offset
    place = delta if places is None else places.get(delta)
    if place is None:
        # Removed by compaction: like a chunk, it is no message.
        return RecordFields(is_chunk=True)
    return _fields_of(header, columns, place, delay_ms=delay_ms)


def _fields_of(header: BatchHeader, columns: Columns, place: int, *, delay_ms: int) -> RecordFields:
    deliver_at_ms = 0
    if delay_ms:
        deltas = columns.timestamp_deltas
        sent_ms = header.first_timestamp_ms + (deltas[place] if deltas else 0)
        deliver_at_ms = sent_ms + delay_ms
    priority: int | None = None
    is_part = False
    for name, value in () if columns.headers is None else columns.headers[place]:
        if name == DELIVER_AT_HEADER:
            deliver_at_ms = _number(value, deliver_at_ms)
        elif name == PRIORITY_HEADER:
            priority = _number(value, priority)
        elif name == CHUNK_HEADER:
            is_part = True
    key = columns.keys[place] if columns.keys else None
    return RecordFields(min(deliver_at_ms, _TIME_MAX_MS), priority, key, is_part)


def _number(value: bytes, default: Default) -> int | Default:
    """Return a decimal number, or the default: a malformed header must not stop the queue."""
    return int(value) if value.isdigit() and len(value) <= _DIGITS_MAX else default
