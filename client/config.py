"""Settings of clients, producers and consumers.

Pure: declarations. Times are seconds, as everywhere in trio. Each group of settings is a frozen
dataclass; the `TypedDict` beside it lets calls such as `client.producer(acks=1)` be type-checked.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any, Literal, TypedDict, TypeVar, cast, final, get_args

from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.compression import CODEC_NAMES
from tidelog.wire.config.unknown_names import unknown_setting
from tidelog.wire.errors import ConfigError
from tidelog.wire.security.access_key import SigningKey

DEFAULT_BROKER = "127.0.0.1:8433"
KiB = 1024
MiB = 1024 * KiB

AcksSetting = Literal["all", 1, 0]
Compression = Literal["none", "lz4", "zstd"]
OffsetReset = Literal["earliest", "latest"]
ReadFrom = Literal["leader", "followers", "nearest"]
Assignor = Literal["uniform", "range"]
TokenSource = Callable[[], str | Awaitable[str]]
"""Returns a fresh token."""
SigningKeySource = Callable[[], SigningKey]
"""Returns the newest signing key of a user."""
RebalanceCallback = Callable[[list[TopicPartition]], Awaitable[object]]
"""Callback with the partitions of a rebalance, sorted."""

_IDEMPOTENT_IN_FLIGHT_MAX = 5
"""Batches of each producer that a broker remembers; it would reject a retry of an older one."""


def _refuse(what: str, problems: dict[str, bool]) -> None:
    """Raise one error that lists every problem that is true."""
    found = [problem for problem, is_there in problems.items() if is_there]
    if found:
        raise ConfigError(f"{what}: {'; '.join(found)}")


Config = TypeVar("Config")


def configured(
    config_type: type[Config],
    config: Config | None,
    settings: Mapping[str, Any],
    *,
    of: str,
    others: Sequence[str] = (),
) -> Config:
    """Return the settings that a call got in one object or as keywords.

    Args:
        config_type: The dataclass of the settings.
        config: All settings in one object, or `None`.
        settings: The keywords.
        of: Owner of the settings, for errors.
        others: Arguments of the call besides, for errors.

    Raises:
        ConfigError: A setting is unknown or not legal, or both forms are given.
    """
    if config is not None:
        if settings:
            raise ConfigError("give either a config object or keywords, not both")
        return config
    known = [each.name for each in fields(cast("Any", config_type))]
    numbers = {each.name for each in fields(cast("Any", config_type)) if _is_number(each.type)}
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(unknown_setting(name, [*known, *others], of=of))
        if name in numbers and isinstance(value, str):
            raise ConfigError(f"{of}: {name} must be a number, not {value!r}")
    return config_type(**settings)


def _is_number(annotation: object) -> bool:
    """Return whether a field takes numbers, or a number or `None`."""
    return {*(get_args(annotation) or (annotation,))} <= {int, float, NoneType}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings that all parts of one client share."""

    client_id: str = "tidelog-python"
    """Name of the client in requests and in the broker's log."""

    connect_timeout: float = 10.0
    """Seconds for one attempt to connect, name lookup and handshake included."""

    request_timeout: float = 30.0
    """Seconds that a request may stay unanswered beyond the time it may wait at the broker. Then
    the client closes the connection as dead. It also limits how long administrative calls are
    retried before they raise the last error, and how long the replies of a broker may be wrong
    before consumers raise that."""

    retry_backoff: float = 0.05
    """Mean seconds before the first retry; doubles with each further retry. Waits are jittered."""

    retry_backoff_max: float = 1.0
    """Maximum mean of the seconds between two retries."""

    metadata_max_age: float = 300.0
    """Seconds after which a producer that sends fetches metadata again (number of partitions and
    their leaders), even without an error. So it finds partitions that were added."""

    queue_delivery_timeout: float = 120.0
    """Seconds from the send of a message to a queue after which no further attempt is made. The
    send raises `DeliveryTimeoutError` then, or at the end of the attempt under way."""

    user: str | None = None
    """Name of the user as which each connection authenticates; with `password`. See
    `docs/authentication.md`."""

    password: str | None = field(default=None, repr=False)
    """Password of `user`. It is proved and never sent."""

    token: str | TokenSource | None = field(default=None, repr=False)
    """Token or JWT that each connection authenticates by, or a callable that returns a fresh one.
    The callable may be `async`; another one runs in a thread. Each connection calls it, and calls
    it again before the end of the last token, so that no request fails."""

    impersonate: SigningKeySource | None = field(default=None, repr=False)
    """For gateways: each connection acts for the user of an access key, of which the gateway has a
    signing key. Brokers check the user's grants and quotas. `user` or `token` then prove a
    principal with the action `impersonate` of the cluster."""

    tls_ca: str | None = None
    """File of the CA certificates that brokers' certificates are checked against (PEM), such as the
    `ca.pem` of the cluster; `"system"` for those of the operating system. With it, all connections
    use TLS; `None` is plain TCP."""

    tls_certificate: str | None = None
    """File of the client's own certificate (PEM), which proves a user, such as `user:alice`."""

    tls_key: str | None = None
    """File of the key of `tls_certificate` (PEM). Changed files are read at the next connection."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: The message lists every problem.
        """
        _refuse(
            "client",
            {
                "tls_certificate and tls_key go together: set both or none": (
                    (self.tls_certificate is None) != (self.tls_key is None)
                ),
                "tls_certificate needs tls_ca, the file of the CAs of the brokers": (
                    self.tls_certificate is not None and self.tls_ca is None
                ),
                "client_id must not be empty": not self.client_id,
                "connect_timeout must be above 0": self.connect_timeout <= 0,
                "request_timeout must be above 0": self.request_timeout <= 0,
                "queue_delivery_timeout must be above 0": self.queue_delivery_timeout <= 0,
                "retry_backoff must be above 0": self.retry_backoff <= 0,
                "metadata_max_age must be above 0": self.metadata_max_age <= 0,
                "retry_backoff_max must not be below retry_backoff": (
                    self.retry_backoff_max < self.retry_backoff
                ),
                "password needs user, the name that it proves": (
                    self.user is None and self.password is not None
                ),
                "user and token exclude each other: a token has its user": (
                    self.user is not None and self.token is not None
                ),
                "token must be a text or a callable": not (
                    self.token is None or isinstance(self.token, str) or callable(self.token)
                ),
                "impersonate must be a callable": not (
                    self.impersonate is None or callable(self.impersonate)
                ),
                "user, password and token must not be empty": (
                    "" in (self.user, self.password, self.token)
                ),
            },
        )

    def require_password(self) -> None:
        """Check that a user has a password, which environment or profile may have given.

        Raises:
            ConfigError: There is none.
        """
        if self.user is not None and self.password is None:
            raise ConfigError(
                f"user {self.user} has no password; set password, TIDELOG_PASSWORD_FILE or"
                " TIDELOG_PASSWORD, or use a token"
            )


class ClientSettings(TypedDict, total=False):
    """The fields of `ClientConfig`, as keywords."""

    client_id: str
    connect_timeout: float
    request_timeout: float
    retry_backoff: float
    retry_backoff_max: float
    metadata_max_age: float
    queue_delivery_timeout: float
    user: str | None
    password: str | None
    token: str | TokenSource | None
    impersonate: SigningKeySource | None
    tls_ca: str | None
    tls_certificate: str | None
    tls_key: str | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How a producer batches records and what it waits for. The defaults are safe and fast."""

    acks: AcksSetting = "all"
    """Replicas that must have a record before it counts as acknowledged: every in-sync replica
    (`"all"`), the leader (`1`), or none (`0`: the outcome is unknown and nothing is retried)."""

    enable_idempotence: bool = True
    """Let brokers recognise batches that are sent again, so that a lost connection causes neither
    duplicates nor disorder. Without it a retry may duplicate records, and only one batch of a
    partition is in flight at a time, because order is kept in any case. No effect with `acks=0`."""

    linger: float = 0.0
    """Seconds that a batch which is not full waits for more records. With 0 it is sent as soon as
    no batch of its partition is in flight, so batches grow by themselves under load; more than a
    few milliseconds rarely helps."""

    batch_size: int = 256 * KiB
    """Size in bytes at which a batch is full, counted as in `buffer_memory`. A larger record is
    sent alone."""

    buffer_memory: int = 32 * MiB
    """Bytes for records that are not acknowledged; each counts 40 bytes on top of its key, value
    and headers until it is packed. When it is used up, `send_nowait` raises `BufferFullError` and
    `send` waits."""

    compression_type: Compression = "none"
    """Codec of batches. `lz4` costs little and helps with text; `zstd` packs better and takes more
    time."""

    max_in_flight_requests_per_connection: int = 5
    """Batches of one partition that may be under way at once, at most 5 when idempotent."""

    delivery_timeout: float = 120.0
    """Seconds after which a record that is not acknowledged fails with `DeliveryTimeoutError`. The
    message says whether the record may be in the log, as one in flight at that moment may."""

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
    """Where to start in a partition without a position: at the `earliest` record or after the
    `latest`. With `None` the consumer raises `NoPositionError` until the program seeks: it never
    skips data or reads all of it again silently. An offset out of range is always an error."""

    fetch_min_bytes: int = 1
    """Bytes at which the broker answers, before `fetch_max_wait` is over."""

    fetch_max_wait: float = 0.5
    """Seconds that the broker may wait for `fetch_min_bytes`. After an empty reply in less than
    half of them the consumer waits as before a retry. With 0 it waits about `retry_backoff`."""

    fetch_max_bytes: int = 8 * MiB
    """Approximate maximum bytes of one fetch, from all partitions of a broker together."""

    max_partition_fetch_bytes: int = 1 * MiB
    """Approximate maximum bytes of one fetch from one partition."""

    prefetch_bytes: int = 16 * MiB
    """Bytes in memory at which prefetching stops; fetches in flight may exceed it once."""

    max_uncompressed_batch_bytes: int = 256 * MiB
    """Maximum bytes of an unpacked batch. A batch that unpacks to more is refused, so that a small
    batch cannot fill the memory."""

    read_from: ReadFrom = "leader"
    """Replica of a partition to fetch from: the `leader`; one of the `followers` in sync, so that
    leaders have less to do; or the `nearest`, in the same rack (`client_rack`). Followers learn
    the high watermark a moment later. If none is in sync, or it cannot answer, the consumer fetches
    from the leader."""

    client_rack: str | None = None
    """Rack of this program, as in the settings of brokers; with `read_from="nearest"`."""

    assignor: Assignor = "uniform"
    """How a group shares partitions: evenly and with few moves (`uniform`), or as ranges that keep
    the same numbers of several topics together (`range`). The choice of most members wins."""

    group_instance_id: str | None = None
    """Name of a static member of a group, the same after each restart of the program: its
    partitions stay assigned while it is away, up to the session timeout of the coordinator."""

    rebalance_timeout: float = 300.0
    """Seconds that a member may take to release revoked partitions, `on_revoked` included. After
    that the coordinator fences the member and assigns its partitions to others. Work on a record is
    not counted."""

    enable_auto_commit: bool = True
    """In a group, commit processed records every `auto_commit_interval`, before partitions are
    released, and at close. A record counts as processed when the next record is requested."""

    auto_commit_interval: float = 5.0
    """Seconds between two automatic commits. Records processed since the last commit are processed
    again after a crash."""

    on_assigned: RebalanceCallback | None = None
    """In a group, awaited before the first record of new partitions; it may `seek` in them."""

    on_revoked: RebalanceCallback | None = None
    """In a group, awaited before revoked partitions are released; it may `commit`."""

    on_lost: RebalanceCallback | None = None
    """In a group, awaited after the coordinator has assigned partitions to other members without
    revoking them, because this member was silent for too long. Commits would be refused."""

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
                "client_rack and read_from='nearest' go together: set both or none": (
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
        """Return the name of the first setting that is set and only valid in a group."""
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
    """The callbacks of `ConsumerConfig`."""

    on_assigned: RebalanceCallback | None
    on_revoked: RebalanceCallback | None
    on_lost: RebalanceCallback | None


class AllConsumerSettings(ConsumerSettings, RebalanceCallbacks, total=False):
    """All fields of `ConsumerConfig`, as keywords."""
