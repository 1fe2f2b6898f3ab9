"""Reader of staged records: all batches of one producer in a range of a staging log.

Shell without tasks.
"""

from collections.abc import Sequence
from typing import Final, final

import trio

from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.logstore.segments.batch_scanner import walk_headers
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.errors import LeaderNotAvailableError, LogOfflineError, OffsetOutOfRangeError
from tidelog.wire.messages.transactions import StagedPiece

_STEP_BYTES: Final = 1 << 20
"""Bytes searched in one go, before other tasks run."""
_NOW_BYTES: Final = 64 << 10
"""Bytes of a staging log that are read at once."""


class PiecesLostError(Exception):
    """Some committed records are not in the staging log."""


@final
class PieceReader:
    """Reads pieces from this broker's replica of a staging log."""

    def __init__(self, reader: SliceReader, staging: Partition) -> None:
        """Read from a replica, whether or not it is led here."""
        self._reader = reader
        self._staging = staging

    async def wait_readable(self, pieces: Sequence[StagedPiece]) -> None:
        """Wait until the pieces are below this replica's high watermark.

        Raises:
            PiecesLostError: They never will be: the leader has all records, and its log ends
                before.
            LeaderNotAvailableError: The replica has not reached the end for a while.
        """
        end = max(piece.end_offset for piece in pieces)
        staging = self._staging
        with trio.move_on_after(_PATIENCE_S):
            while staging.high_watermark < end:
                if staging.leader is not None and staging.log.log_end_offset < end:
                    raise PiecesLostError(f"the staging log ends before offset {end}")
                waiter = _Waiter()
                staging.wait_for_data(waiter)
                try:
                    await waiter.is_awake.wait()
                finally:
                    staging.stop_waiting(waiter)
        if staging.high_watermark < end:
            raise LeaderNotAvailableError("this replica of the staging log is behind")

    def read_now(self, pieces: Sequence[StagedPiece]) -> list[tuple[BatchHeader, bytearray]] | None:
        """Return all batches of small pieces, `None` if that may take long, or some are missing.

        Raises:
            BrokerError: The log cannot be read now.
        """
        found: list[tuple[BatchHeader, bytearray]] = []
        room_bytes = _NOW_BYTES
        for piece in pieces:
            batches = self._piece_now(piece) if room_bytes >= 0 else None
            if batches is None:
                return None
            found += batches
            room_bytes -= sum(header.size for header, _ in batches)
        return found

    def _piece_now(self, piece: StagedPiece) -> list[tuple[BatchHeader, bytearray]] | None:
        staging, end = self._staging, piece.end_offset
        if staging.is_held or staging.high_watermark < end:
            return None
        try:
            part = staging.log.read(
                piece.first_offset, max_bytes=_NOW_BYTES, high_watermark=staging.high_watermark
            )
            if part is None or self._reader.is_cold(part):
                return None
            places, next_offset = self._walk(part, piece.first_offset, piece)
            count = sum(header.record_count for _, header in places)
            is_whole = next_offset >= end and count == piece.record_count
            return self._opened(part, places) if is_whole else None
        except (OffsetOutOfRangeError, PiecesLostError):
            return None

    async def check(self, pieces: Sequence[StagedPiece]) -> None:
        """Raise unless all records of the pieces exist.

        Raises:
            PiecesLostError: Some records are missing.
            BrokerError: The log cannot be read now.
        """
        for piece in pieces:
            found, offset = 0, piece.first_offset
            while offset < piece.end_offset:
                _, places, offset = await self._find(piece, offset)
                found += sum(header.record_count for _, header in places)
            if found != piece.record_count:
                raise PiecesLostError(
                    f"{found} of {piece.record_count} records are left of producer"
                    f" {piece.producer_id} from offset {piece.first_offset} to {piece.end_offset}"
                )

    async def read(
        self, piece: StagedPiece, offset: int
    ) -> tuple[list[tuple[BatchHeader, bytearray]], int]:
        """Return some batches of a piece from an offset on, and the next offset.

        Their payloads are not checked.

        Raises:
            PiecesLostError: The log begins behind the piece, or the data key of a batch was
                deleted.
            BrokerError: The log cannot be read now.
        """
        part, places, next_offset = await self._find(piece, offset)
        return self._opened(part, places), next_offset

    def _opened(
        self, part: LogSlice, places: Sequence[tuple[int, BatchHeader]]
    ) -> list[tuple[BatchHeader, bytearray]]:
        batches: list[tuple[BatchHeader, bytearray]] = []
        try:
            for position, header in places:
                data = part.file.read_at(position, header.size)
                plain_header, plain = self._staging.opened(header, data)
                if plain_header.record_count != header.record_count:
                    raise PiecesLostError(f"the data key of offset {header.base_offset} is deleted")
                batches.append((plain_header, bytearray(plain)))
        except OSError as error:
            raise self._staging.reading_failed(error) from error
        return batches

    async def _find(
        self, piece: StagedPiece, offset: int
    ) -> tuple[LogSlice, list[tuple[int, BatchHeader]], int]:
        """Return a slice of the log, positions of a piece's batches in it, and the next offset."""
        part = await self._part(offset)
        return part, *self._walk(part, offset, piece)

    async def _part(self, offset: int) -> LogSlice:
        staging = self._staging
        if staging.is_held:
            raise LeaderNotAvailableError("this replica of the staging log is being repaired")
        try:
            part = staging.log.read(
                offset, max_bytes=_STEP_BYTES, high_watermark=staging.high_watermark
            )
        except OffsetOutOfRangeError as error:
            raise PiecesLostError(str(error)) from error
        if part is None:
            raise LeaderNotAvailableError("this replica of the staging log is behind")
        if self._reader.is_cold(part):
            return await self._reader.load(staging, part)
        await trio.lowlevel.checkpoint()
        return part

    def _walk(
        self, part: LogSlice, offset: int, piece: StagedPiece
    ) -> tuple[list[tuple[int, BatchHeader]], int]:
        first, end = offset, part.position + part.length
        found: list[tuple[int, BatchHeader]] = []
        walk = walk_headers(part.file, part.position, start_offset=part.start_offset, end=end)
        try:
            for position, header in walk:
                if header.next_offset <= offset:
                    continue
                if header.base_offset > offset > first:
                    break  # A gap: the next read raises an error for it.
                is_inside = (
                    header.base_offset >= piece.first_offset
                    and header.next_offset <= piece.end_offset
                )
                if is_inside and header.producer_id == piece.producer_id:
                    found.append((position, header))
                offset = header.next_offset
                if offset >= piece.end_offset:
                    break
        except OSError as error:
            raise self._staging.reading_failed(error) from error
        if offset == first:
            raise LogOfflineError(f"the staging log cannot be read at offset {offset}")
        return found, offset


_PATIENCE_S: Final = 5.0


@final
class _Waiter:
    """See `broker.partitions.partition.DataWaiter`."""

    def __init__(self) -> None:
        self.is_awake = trio.Event()

    def wake(self) -> None:
        self.is_awake.set()
