"""The catalog of a single node: agreed on with nobody, durable in a log of its own.

Shell: owns the metadata log. A cluster puts its replicated log behind the same interface.
"""

from typing import Protocol, final

import msgspec
import trio

from coordinator.catalog import PRODUCER_ID_BLOCK, Catalog, Command, Record, TakeProducerIds
from logstore.config import LogConfig
from logstore.file_cache import FileCache
from logstore.log import LogStatus, PartitionLog
from logstore.recovery import open_log
from logstore.segment_format import SegmentHeader
from wire.env import Env
from wire.errors import (
    CorruptRecordError,
    DataDirectoryError,
    InvalidConfigError,
    LogOfflineError,
    WireFormatError,
)
from wire.record_batch import HEADER_SIZE, Columns, decode_columns, encode_batch, parse_header

METADATA_DIRECTORY = "metadata"
_OWNER = SegmentHeader(b"tidelog-metadata", 0, 0)
_CONFIG = LogConfig(retention_ms=None, segment_bytes=64 << 20)
_LEADER_EPOCH = 0
_UNCOMPRESSED_MAX = 64 << 20

_record_decoder = msgspec.msgpack.Decoder(Record)


class Metadata(Protocol):
    """Where a broker learns of topics and asks for changes."""

    @property
    def catalog(self) -> Catalog:
        """The catalog as far as this broker knows it; only to be read."""
        ...

    async def submit(self, command: Command) -> None:
        """Carry out a command; durable, and visible in `catalog`, when this returns.

        If cancelled, the command may or may not be carried out.

        Raises:
            BrokerError: The command was refused, or the metadata cannot be written.
        """
        ...

    async def take_producer_id(self) -> int:
        """Return a producer id that nobody else gets."""
        ...


@final
class LocalMetadata:
    """The catalog and its log.

    Invariant: the catalog is what the durable records of the log add up to.
    """

    def __init__(self, env: Env, log: PartitionLog, catalog: Catalog) -> None:
        """Go on from a catalog that was read from `log`."""
        self._env = env
        self._log = log
        self._catalog = catalog
        self._lock = trio.Lock()
        self._taking_ids = trio.Lock()
        self._next_producer_id: int = 0
        self._producer_ids_end: int = 0

    @property
    def catalog(self) -> Catalog:
        """See `Metadata`."""
        return self._catalog

    async def submit(self, command: Command) -> None:
        """See `Metadata`."""
        async with self._lock:
            records = self._catalog.handle(command)
            if records:
                # Not to be cancelled in between: the log and the catalog must agree.
                with trio.CancelScope(shield=True):
                    await self._append(records)
                for record in records:
                    self._catalog.apply(record)

    async def take_producer_id(self) -> int:
        """See `Metadata`."""
        # One at a time, or else everybody who finds the block used up takes a block of their own.
        async with self._taking_ids:
            if self._next_producer_id == self._producer_ids_end:
                await self.submit(TakeProducerIds())
                self._producer_ids_end = self._catalog.next_producer_id
                self._next_producer_id = self._producer_ids_end - PRODUCER_ID_BLOCK
            self._next_producer_id += 1
            return self._next_producer_id - 1

    async def aclose(self) -> None:
        """Make a start without scanning possible, and close the log.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        async with self._lock:  # A command may still be on its way to the disk.
            self._log.require_online()
            self._log.request_checkpoint()
            await self._flush()
            self._log.close()

    async def _append(self, records: list[Record]) -> None:
        now_ms = self._env.clock.now_ms()
        values = [msgspec.msgpack.encode(record) for record in records]
        batch = encode_batch(Columns(len(values), values=values), first_timestamp_ms=now_ms)
        header = parse_header(batch)
        assert header is not None
        was_online = self._log.status is not LogStatus.OFFLINE
        try:
            self._log.append(memoryview(batch), header, leader_epoch=_LEADER_EPOCH, now_ms=now_ms)
        except LogOfflineError as error:
            if was_online:
                self._tell_offline(str(error))
            raise
        await self._flush()

    async def _flush(self) -> None:
        flush = self._log.begin_flush()
        if flush is None:
            return
        try:
            await self._env.offload(flush.run)
        except OSError as error:
            self._log.fail(f"fsync failed: {error}")
            self._tell_offline(f"fsync failed: {error}")
            raise LogOfflineError(f"the metadata log is offline: {error}") from error
        self._log.end_flush(flush)

    def _tell_offline(self, reason: str) -> None:
        self._env.probe("metadata_offline", severity="error", reason=reason)


async def open_local_metadata(env: Env, files: FileCache) -> LocalMetadata:
    """Open the metadata of a data directory; an empty one begins without topics.

    Raises:
        DataDirectoryError: The metadata is damaged, or was written by a newer version.
        OSError: The disk failed.
    """
    where = f"{files.disk.root}/{METADATA_DIRECTORY}"

    def open_and_read() -> tuple[PartitionLog, Catalog]:
        log, report = open_log(
            METADATA_DIRECTORY, _OWNER, files, _CONFIG, now_ms=env.clock.now_ms()
        )
        if report.damage:
            # Guessing which topics exist would put their records at risk.
            raise DataDirectoryError(
                f"{where} is damaged at offset {report.damage[0].offset}; restore it from a backup"
            )
        try:
            return log, _read_catalog(log)
        except CorruptRecordError as error:
            raise DataDirectoryError(
                f"{where} is damaged: {error}; restore it from a backup"
            ) from error
        except (WireFormatError, msgspec.MsgspecError, InvalidConfigError) as error:
            raise DataDirectoryError(
                f"{where} holds what this tidelog does not understand: {error}; use the version"
                " that wrote it, or a newer one"
            ) from error

    log, catalog = await env.offload(open_and_read)
    return LocalMetadata(env, log, catalog)


def _read_catalog(log: PartitionLog) -> Catalog:
    catalog = Catalog()
    offset = log.log_start_offset
    while (
        part := log.read(offset, bytes_max=1 << 20, high_watermark=log.log_end_offset)
    ) is not None:
        data = memoryview(part.load().read())
        while len(data) >= HEADER_SIZE:
            header = parse_header(data)
            assert header is not None, "checked by load"
            columns = decode_columns(
                header, data[: header.size], uncompressed_length_max=_UNCOMPRESSED_MAX
            )
            data = data[header.size :]
            if header.base_offset >= offset:
                for value in columns.values or ():
                    assert value is not None
                    catalog.apply(_record_decoder.decode(value))
                offset = header.next_offset
    return catalog
