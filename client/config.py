"""Settings of clients, producers and consumers.

Pure: declarations. Times are seconds, as everywhere in trio. Each group of settings is a frozen
dataclass; the `TypedDict` beside it lets calls such as `client.producer(acks=1)` be type-checked.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypedDict, final

from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.compression import CODEC_NAMES
from tidelog.wire.errors import ConfigError

KiB = 1024
MiB = 1024 * KiB

AcksSetting = Literal["all", 1, 0]
Compression = Literal["none", "lz4", "zstd"]
OffsetReset = Literal["earliest", "latest"]
ReadFrom = Literal["leader", "followers", "nearest"]
Assignor = Literal["uniform", "range"]
RebalanceCallback = Callable[[list[TopicPartition]], Awaitable[object]]
"""Told of partitions, in order."""

_IDEMPOTENT_IN_FLIGHT_MAX = 5
"""A broker remembers so many batches of each producer; a retry of an older one would be refused."""


def _refuse(what: str, problems: dict[str, bool]) -> None:
    """Raise one error that lists every problem that is true."""
    found = [problem for problem, is_there in problems.items() if is_there]
    if found:
        raise ConfigError(f"{what}: {'; '.join(found)}")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What all parts of one client share."""

    client_id: str = "tidelog-python"
    """How the client introduces itself; it stands in the broker's log."""

    connect_timeout: float = 10.0
    """How long one attempt to connect may take, name lookup and hello included."""

    request_timeout: float = 30.0
    """How long a request may stay unanswered beyond the time it may wait at the broker. Then the
    connection counts as dead and is closed. It is also how long administrative calls are retried
    before they raise what went wrong last."""

    retry_backoff: float = 0.05
    """Mean wait before the first retry; it doubles with each further one. Waits are jittered."""

    retry_backoff_max: float = 1.0
    """Longest wait between two retries."""

    metadata_max_age: float = 300.0
    """How long producers that send believe how many partitions a topic has, and who leads them,
    before they ask again although nothing was wrong: so they find partitions that were added."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: The message lists every problem.
        """
        _refuse(
            "client",
            {
                "client_id must not be empty": not self.client_id,
                "connect_timeout must be above 0": self.connect_timeout <= 0,
                "request_timeout must be above 0": self.request_timeout <= 0,
                "retry_backoff must be above 0": self.retry_backoff <= 0,
                "metadata_max_age must be above 0": self.metadata_max_age <= 0,
                "retry_backoff_max must not be below retry_backoff": (
                    self.retry_backoff_max < self.retry_backoff
                ),
            },
        )


class ClientSettings(TypedDict, total=False):
    """The fields of `ClientConfig`, as keywords."""

    client_id: str
    connect_timeout: float
    request_timeout: float
    retry_backoff: float
    retry_backoff_max: float
    metadata_max_age: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How a producer batches, and what it waits for. The defaults are safe and fast."""

    acks: AcksSetting = "all"
    """Who must have a record before it counts as acknowledged: every in-sync replica (`"all"`),
    the leader (`1`), or nobody (`0`: then nothing is known, and nothing is sent again)."""

    enable_idempotence: bool = True
    """Let brokers recognise batches that are sent again, so that a lost connection causes neither
    duplicates nor disorder. Without it a retry may duplicate, and only one batch of a partition
    is under way at a time, because order is kept in any case. No effect with `acks=0`."""

    linger: float = 0.0
    """How long a batch that is not full waits for more records. With 0 it is sent as soon as no
    batch of its partition is under way, so batches grow by themselves under load; more than a
    few milliseconds rarely helps."""

    batch_size: int = 256 * KiB
    """A batch is full at this size, counted as in `buffer_memory`. A larger record travels
    alone."""

    buffer_memory: int = 32 * MiB
    """Memory for records that are not acknowledged; each counts 40 bytes on top of its key, value
    and headers until it is packed. When it is used up, `send_nowait` raises `trio.WouldBlock` and
    `send` waits."""

    compression_type: Compression = "none"
    """`lz4` costs little and helps with text; `zstd` packs better and takes more time."""

    max_in_flight_requests_per_connection: int = 5
    """Batches of one partition that may be under way at once, at most 5 when idempotent."""

    delivery_timeout: float = 120.0
    """A record that is not acknowledged after this time fails with `DeliveryTimeoutError`; one that
    is under way at that moment, when its request ends."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: The message lists every problem.
        """
        is_ordered = self.enable_idempotence and self.acks != 0
        in_flight_max = self.max_in_flight_requests_per_connection
        _refuse(
            "producer",
            {
                f"acks must be 'all', 1 or 0, not {self.acks!r}": self.acks not in ("all", 1, 0),
                f"compression_type must be one of {', '.join(CODEC_NAMES)},"
                f" not {self.compression_type!r}": self.compression_type not in CODEC_NAMES,
                "linger must not be negative": self.linger < 0,
                "batch_size must be above 0": self.batch_size <= 0,
                "buffer_memory must not be below batch_size": (
                    self.buffer_memory < self.batch_size
                ),
                "max_in_flight_requests_per_connection must be above 0": in_flight_max <= 0,
                "max_in_flight_requests_per_connection must not be above"
                f" {_IDEMPOTENT_IN_FLIGHT_MAX} when idempotent": (
                    is_ordered and in_flight_max > _IDEMPOTENT_IN_FLIGHT_MAX
                ),
                "delivery_timeout must be above linger": self.delivery_timeout <= self.linger,
            },
        )


class ProducerSettings(TypedDict, total=False):
    """The fields of `ProducerConfig`, as keywords."""

    acks: AcksSetting
    enable_idempotence: bool
    linger: float
    batch_size: int
    buffer_memory: int
    compression_type: Compression
    max_in_flight_requests_per_connection: int
    delivery_timeout: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Where a consumer starts, how much it reads ahead, and how it is a member of a group."""

    auto_offset_reset: OffsetReset | None = None
    """Where to start in a partition that has no position: at the `earliest` record or behind the
    `latest`. `None` raises `NoPositionError` until the program seeks: skipping data or reading it
    all again is never decided in silence. An offset out of range is always an error."""

    fetch_min_bytes: int = 1
    """The broker answers when it has so many bytes, or after `fetch_max_wait`."""

    fetch_max_wait: float = 0.5
    """How long the broker may wait for `fetch_min_bytes`."""

    fetch_max_bytes: int = 8 * MiB
    """About how much one fetch brings, from all partitions of a broker together."""

    max_partition_fetch_bytes: int = 1 * MiB
    """About how much one fetch brings from one partition."""

    prefetch_bytes: int = 16 * MiB
    """Read ahead until about so many bytes are in memory; fetches under way may exceed it once."""

    max_uncompressed_batch_bytes: int = 256 * MiB
    """A batch that unpacks to more is refused, so that a small one cannot fill the memory."""

    read_from: ReadFrom = "leader"
    """Which replica of a partition is read: the `leader`; one of the `followers` in sync, so that
    leaders have less to do; or the `nearest`, in the same rack (`client_rack`). Followers know a
    moment later what is committed. Where none is in sync, or it cannot say, the leader is read."""

    client_rack: str | None = None
    """Where this program runs, as brokers call it; with `read_from="nearest"`."""

    assignor: Assignor = "uniform"
    """In a group, how partitions are shared: evenly and with few moves, or as ranges that put the
    same numbers of several topics together. What most members want is done."""

    group_instance_id: str | None = None
    """In a group, the name of a static member, the same after each restart of the program: its
    partitions wait for it while it is away, up to the session timeout of the coordinator."""

    rebalance_timeout: float = 300.0
    """In a group, how long it may take to release revoked partitions, `on_revoked` included. After
    that the member is fenced and others get its partitions. Work on a record is not counted."""

    enable_auto_commit: bool = True
    """In a group, commit what was processed every `auto_commit_interval`, before partitions are let
    go of, and at close. A record counts as processed when the next one is asked for."""

    auto_commit_interval: float = 5.0
    """Between two automatic commits. What was processed since the last one is processed again
    after a crash."""

    on_assigned: RebalanceCallback | None = None
    """In a group, awaited before the first record of new partitions; it may `seek` in them."""

    on_revoked: RebalanceCallback | None = None
    """In a group, awaited before partitions are given on to others; it may `commit`."""

    on_lost: RebalanceCallback | None = None
    """In a group, awaited after partitions were given to others without being asked for, because
    nothing was heard of this member for too long. Commits would be refused."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: The message lists every problem.
        """
        _refuse(
            "consumer",
            {
                f"auto_offset_reset must be 'earliest', 'latest' or None,"
                f" not {self.auto_offset_reset!r}": (
                    self.auto_offset_reset not in ("earliest", "latest", None)
                ),
                "fetch_min_bytes must be above 0": self.fetch_min_bytes <= 0,
                "fetch_max_wait must not be negative": self.fetch_max_wait < 0,
                "max_partition_fetch_bytes must be above 0": self.max_partition_fetch_bytes <= 0,
                "fetch_max_bytes must not be below max_partition_fetch_bytes": (
                    self.fetch_max_bytes < self.max_partition_fetch_bytes
                ),
                "prefetch_bytes must be above 0": self.prefetch_bytes <= 0,
                "max_uncompressed_batch_bytes must be above 0": (
                    self.max_uncompressed_batch_bytes <= 0
                ),
                f"read_from must be 'leader', 'followers' or 'nearest', not {self.read_from!r}": (
                    self.read_from not in ("leader", "followers", "nearest")
                ),
                "client_rack and read_from='nearest' go together: say both or none": (
                    (self.read_from == "nearest") != bool(self.client_rack)
                ),
                f"assignor must be 'uniform' or 'range', not {self.assignor!r}": (
                    self.assignor not in ("uniform", "range")
                ),
                "group_instance_id must not be empty": self.group_instance_id == "",
                "rebalance_timeout must be above 0": self.rebalance_timeout <= 0,
                "auto_commit_interval must be above 0": self.auto_commit_interval <= 0,
            },
        )

    def first_group_setting(self) -> str | None:
        """Return the name of a setting that asks for something only groups do."""
        names = ("group_instance_id", "on_assigned", "on_revoked", "on_lost")
        return next((name for name in names if getattr(self, name) is not None), None)


class ConsumerSettings(TypedDict, total=False):
    """The fields of `ConsumerConfig`, as keywords."""

    auto_offset_reset: OffsetReset | None
    fetch_min_bytes: int
    fetch_max_wait: float
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    prefetch_bytes: int
    max_uncompressed_batch_bytes: int
    read_from: ReadFrom
    client_rack: str | None
    assignor: Assignor
    group_instance_id: str | None
    rebalance_timeout: float
    enable_auto_commit: bool
    auto_commit_interval: float


class RebalanceCallbacks(TypedDict, total=False):
    """The fields of `ConsumerConfig` that are called."""

    on_assigned: RebalanceCallback | None
    on_revoked: RebalanceCallback | None
    on_lost: RebalanceCallback | None


class AllConsumerSettings(ConsumerSettings, RebalanceCallbacks, total=False):
    """All fields of `ConsumerConfig`, as keywords."""
