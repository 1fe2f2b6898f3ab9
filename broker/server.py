"""The broker: where the parts are put together.

Shell: owns the listening socket and the order in which things start and stop.
"""

import errno
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import cast, final

import trio

from broker.config import BrokerConfig, parse_address
from broker.connection import Connection
from broker.data_directory import DataDirectory, open_data_directory
from broker.dispatch import Dispatcher, SlowHandler
from broker.flusher import Flusher
from broker.handlers.fetch import FetchHandler
from broker.handlers.offsets import OffsetsHandler
from broker.handlers.produce import ProduceHandler
from broker.handlers.session import SessionHandler
from broker.handlers.topics import TopicsHandler
from broker.maintenance import Maintenance
from broker.memory import MemoryBudget
from broker.partitions import Partitions
from broker.waiting import Waiting
from coordinator.local import LocalMetadata, open_local_metadata
from logstore.disk import Disk
from logstore.file_cache import FileCache
from wire import api
from wire.api import ApiKey
from wire.env import Env, Listener
from wire.errors import ConfigError, LogOfflineError

_log = logging.getLogger("tidelog.broker")

_ACCEPT_RETRY_S = 0.1
_VERSION = version("tidelog")
"""Looked up when the program is loaded: a start touches files only through its disk."""


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """What a broker holds for its clients at this moment."""

    connection_count: int
    waiting_count: int
    """Requests that wait for acknowledgements or for data."""
    waiter_count: int
    """Entries of such requests at partitions; one request may wait at many."""
    request_memory_bytes: int
    """Memory lent to connections, of `request_memory_bytes` in the settings."""


@final
class Broker:
    """A running broker."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        directory: DataDirectory,
        metadata: LocalMetadata,
        partitions: Partitions,
        nursery: trio.Nursery,
    ) -> None:
        """Put the parts together; `open_broker` opens them."""
        self._env = env
        self._config = config
        self._directory = directory
        self._metadata = metadata
        self._partitions = partitions
        self._nursery = nursery
        self._waiting = Waiting()
        self._flusher = Flusher(env, nursery)
        self._memory = MemoryBudget(config.request_memory_bytes)
        self._connections: dict[Connection, None] = {}
        self._accepting = trio.CancelScope()
        self._listener: Listener | None = None
        self._topics = TopicsHandler(env, config, metadata, partitions, self._flusher)
        self._dispatcher = self._make_dispatcher()
        self._maintenance = Maintenance(
            env,
            config,
            partitions,
            self._flusher,
            self._connections,
            self._topics.make_missing_logs,
        )

    @property
    def address(self) -> str:
        """`HOST:PORT` that is listened on."""
        assert self._listener is not None
        host, port = self._listener.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def cluster_id(self) -> str:
        """Identity of the cluster that this broker is."""
        return self._directory.identity.cluster_id

    def statistics(self) -> BrokerStatistics:
        """Return what is held for clients now."""
        return BrokerStatistics(
            connection_count=len(self._connections),
            waiting_count=len(self._waiting),
            waiter_count=sum(each.waiter_count for each in self._partitions.all()),
            request_memory_bytes=self._memory.used_bytes,
        )

    def start(self, listener: Listener) -> None:
        """Begin to serve."""
        self._listener = listener
        for partition in self._partitions.all():
            self._flusher.request(partition)
        self._nursery.start_soon(self._waiting.run)
        self._nursery.start_soon(self._maintenance.run)
        self._nursery.start_soon(self._accept, listener)

    async def stop(self) -> None:
        """Finish what is under way, put everything on disk, and leave the mark of a clean stop."""
        self._env.probe("broker_stopping", address=self.address)
        self._accepting.cancel()
        self._dispatcher.is_shutting_down = True
        with trio.move_on_after(self._config.shutdown_grace_ms / 1000):
            self._waiting.close_all()
            for connection in list(self._connections):
                await connection.finish()
        for partition in self._partitions.all():
            partition.log.request_checkpoint()
            self._flusher.request(partition)
        await self._flusher.wait_idle()
        try:
            await self._metadata.aclose()
            for partition in self._partitions.all():
                partition.log.require_online()
            now_ms = self._env.clock.now_ms()
            await self._env.offload(lambda: self._directory.mark_clean(now_ms=now_ms))
        except (LogOfflineError, OSError) as error:
            self._env.probe("broker_stopped", severity="warning", is_clean=False, reason=str(error))
        else:
            self._env.probe("broker_stopped", is_clean=True)

    async def _accept(self, listener: Listener) -> None:
        try:
            with self._accepting:
                while True:
                    await self._accept_one(listener)
        finally:
            listener.close()

    async def _accept_one(self, listener: Listener) -> None:
        try:
            stream = await listener.accept()
        except OSError as error:
            # Usually no descriptors are left: those who are connected go on.
            self._env.probe("accept_failed", severity="error", reason=str(error))
            await trio.sleep(_ACCEPT_RETRY_S)
            return
        if len(self._connections) >= self._config.connections_max:
            self._env.probe(
                "connection_refused",
                severity="warning",
                peer=stream.peer,
                reason=f"there are {self._config.connections_max} connections already",
            )
            stream.close()
            return
        connection = Connection(self._env, self._config, stream, self._dispatcher, self._memory)
        self._connections[connection] = None
        self._nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: Connection) -> None:
        """Serve one connection: the other of the two supervisors that catch every exception."""
        try:
            await connection.run()
        except Exception as error:  # noqa: BLE001  (the supervisor)
            _log.error("a connection failed unexpectedly", exc_info=error)
        finally:
            del self._connections[connection]

    def _make_dispatcher(self) -> Dispatcher:
        session = SessionHandler(
            self._config,
            self._metadata,
            self._partitions,
            cluster_id=self._directory.identity.cluster_id,
            version=_VERSION,
        )
        topics = self._topics
        offsets = OffsetsHandler(self._env, self._partitions)
        slow = (
            (api.CREATE_TOPIC, topics.create),
            (api.DESCRIBE_TOPICS, topics.describe),
            (api.ALTER_TOPIC, topics.alter),
            (api.DELETE_TOPIC, topics.delete),
            (api.DELETE_RECORDS, topics.delete_records),
            (api.INIT_PRODUCER, session.init_producer),
            (api.LIST_OFFSETS, offsets.list_offsets),
        )
        return Dispatcher(
            self._nursery,
            session=session,
            produce=ProduceHandler(self._env, self._partitions, self._flusher, self._waiting),
            fetch=FetchHandler(
                self._env,
                self._partitions,
                self._waiting,
                self._nursery,
                fetch_bytes_max=self._config.fetch_bytes_max,
            ),
            slow={
                ApiKey(served.key): (cast("api.AnyApi", served), cast("SlowHandler", handler))
                for served, handler in slow
            },
        )


@asynccontextmanager
async def open_broker(config: BrokerConfig, env: Env, disk: Disk) -> AsyncGenerator[Broker, None]:
    """Run a broker while the block runs; then stop it cleanly.

    If cancelled, or if the block raises, the broker ends at once, as in a crash: what was
    acknowledged is safe, and the next start looks at the rest.

    Raises:
        DataDirectoryError: The data directory is in use, of another node, or damaged.
        ConfigError: The address cannot be listened on.
        OSError: The disk failed.
    """
    cluster_id = env.random.randbytes(12).hex()
    disk_id = env.random.randbytes(12).hex()
    directory = await env.offload(
        lambda: open_data_directory(
            disk, node_id=config.node_id, cluster_id=cluster_id, disk_id=disk_id
        )
    )
    try:
        # First the address, so that a port in use is said before a long recovery.
        listener = await _listen(env, config)
        try:
            files = FileCache(disk, open_files_max=config.open_files_max)
            metadata = await open_local_metadata(env, files)
            _warn_of_large_batches(env, config, metadata)
            partitions = Partitions(env, directory, files)
            await partitions.open_all(metadata.catalog)
            failure: Exception | None = None
            async with trio.open_nursery() as nursery:
                broker = Broker(env, config, directory, metadata, partitions, nursery)
                broker.start(listener)
                env.probe(
                    "broker_started",
                    address=broker.address,
                    data_dir=disk.root,
                    node_id=config.node_id,
                    cluster_id=broker.cluster_id,
                    was_clean=directory.was_clean,
                )
                try:
                    yield broker
                    await broker.stop()
                except Exception as error:  # noqa: BLE001  (raised again below)
                    # Past the nursery, so that it arrives as it is and not in a group.
                    failure = error
                nursery.cancel_scope.cancel()
            if failure is not None:
                raise failure
        finally:
            listener.close()
    finally:
        directory.release()


def _warn_of_large_batches(env: Env, config: BrokerConfig, metadata: LocalMetadata) -> None:
    """Say which topics allow batches that this broker cannot receive (any more)."""
    for topic in metadata.catalog.topics:
        if topic.config.log.batch_bytes_max > config.batch_bytes_limit:
            env.probe(
                "batches_beyond_frames",
                severity="warning",
                topic=topic.name,
                batch_bytes_max=topic.config.log.batch_bytes_max,
                batch_bytes_limit=config.batch_bytes_limit,
            )


async def _listen(env: Env, config: BrokerConfig) -> Listener:
    host, port = parse_address(config.listen)
    try:
        return await env.network.listen(host, port)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        advice = "is another broker running there? " if is_taken else ""
        raise ConfigError(
            f"cannot listen on {config.listen}: {error.strerror or error};"
            f" {advice}choose another address with --listen"
        ) from error
