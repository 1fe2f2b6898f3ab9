"""Settings of one broker process.

No other module reads the configuration file or the environment. Settings that all brokers of a
cluster share, such as those of topics, are in the metadata.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import cast

from tidelog.broker.config.jwt_rules import (
    DEFAULT_ALGORITHMS,
    JwtRules,
    jwt_problems,
    parse_algorithms,
)
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.metadata.topic_config import (
    REPLICATION_FACTOR_MAX,
    SETTINGS,
    check_settings,
    topic_config,
)
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.wire.config.durations import parse_duration_ms
from tidelog.wire.config.settings import parse_size_bytes
from tidelog.wire.config.unknown_names import unknown_setting
from tidelog.wire.errors import ConfigError, InvalidConfigError

DEFAULT_PORT = 8433
DEFAULT_HTTP_LISTEN = "127.0.0.1:8480"
"""`http_listen` of `tidelog serve`, which starts without it if the address is in use."""
_ENVIRONMENT_PREFIX = "TIDELOG_"
_PORT_MAX = 0xFFFF
_ADDRESS = re.compile(
    r"(?:(?P<name>[^\s\[\]/:]+)|\[(?P<bracketed>[0-9a-fA-F:.]+)\])(?::(?P<port>[0-9]{1,5}))?"
    r"|(?P<bare>[0-9a-fA-F.]*(?::[0-9a-fA-F.]*){2,})"
)
_COUNT = re.compile(r"[0-9]{1,18}")
_FRAME_OVERHEAD_BYTES = 64 << 10
MiB = 1 << 20
FRAME_BYTES_OF_PEERS = RaftConfig().max_payload_bytes + MiB
"""Minimum frame size between nodes in bytes: one entry of the metadata log and its frame must
fit."""
_HOUR_MS = 3_600_000

SWITCH = ("on", "off")
AUDIT_MODES = ("off", "on", "required")
TLS_MODES = ("off", "accept", "require")
AUTHENTICATION = ("optional", "required")
LOG_FORMATS = ("console", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")


def _number(default: int, *, low: int, high: int) -> int:
    """Declare a numeric setting with an inclusive range from `low` to `high`."""
    return field(default=default, metadata={"low": low, "high": high})


def _choice(default: str, *, allowed: Sequence[str]) -> str:
    """Declare a setting with a fixed set of allowed values."""
    return field(default=default, metadata={"allowed": allowed})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The settings of one broker process; every field can be set in the TOML file."""

    data_dir: str = "tidelog-data"
    """Directory of all data; created when it is missing."""

    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    """HOST:PORT to listen on; port 0 takes a free one."""

    advertised: str = ""
    """HOST:PORT that clients are told to connect to; empty means the address at which the client
    reached this broker."""

    http_listen: str = ""
    """HOST:PORT of the HTTP server for [health checks](operations.md#health-checks) and
    [metrics](metrics.md). It is read-only and has no authentication: listen on an address that only
    operators reach. Empty turns it off. The default is for embedded brokers; that of `tidelog
    serve` is `127.0.0.1:8480`, and a broker starts without the server if this default is in
    use."""

    node_id: int = _number(1, low=1, high=(1 << 31) - 1)
    """Number of this broker in its cluster; fixed once a data directory was created with it."""

    peers: str = ""
    """The nodes of the cluster, including this one: `1=HOST:PORT,2=HOST:PORT,3=HOST:PORT`. All of
    them get the same text. Empty means a cluster of one node. A node that joins a cluster later
    lists itself and some of the existing nodes."""

    cluster_secret_file: str = ""
    """File with the secret by which the nodes of a cluster know each other, the same on all
    machines. Created, for this user alone, when it is missing. Empty means
    `~/.config/tidelog/cluster-secret`."""

    tls: str = _choice("off", allowed=TLS_MODES)
    """Whether connections of clients and other nodes use [TLS](tls.md): `off`, `require`, or
    `accept` for TLS and plain TCP on the same port, while a cluster changes over. With
    `tls_directory`, the default is `require`."""

    tls_directory: str = ""
    """Directory with `cert.pem`, `key.pem` and `ca.pem`, or with such a directory `node-ID` for
    this node; read again when the files change. Empty means none."""

    authentication: str = _choice("optional", allowed=AUTHENTICATION)
    """Whether clients must [authenticate](authentication.md): `optional` serves anonymous clients
    as well, `required` refuses them. Set the same on all nodes."""

    authorization: str = _choice("off", allowed=("off", "report", "enforce"))
    """Whether clients need [rules of access](access.md): `off` allows everything, `report` serves
    everything and logs what would be denied, `enforce` denies what no rule allows. Nodes need
    none."""

    insecure_listen: str = _choice("off", allowed=SWITCH)
    """Whether `tidelog serve` may serve other machines without TLS and authentication: `on` or
    `off`. With `off`, it refuses a `listen` or `advertised` address beyond loopback. With `on`, it
    [warns](operations.md#insecure_listen) at its start and each hour."""

    sqs_listen: str = ""
    """HOST:PORT at which `tidelog serve` answers the API of Amazon SQS (`tidelog sqs` does so in a
    process of its own). Empty turns it off. Embedded brokers have no such server."""

    sqs_authentication: str = _choice("required", allowed=("required", "off"))
    """Whether requests at `sqs_listen` need a signature by an access key of a user: `required`, or
    `off`, which is possible on an address of this machine alone."""

    sqs_strict: str = _choice("off", allowed=SWITCH)
    """Whether the API at `sqs_listen` imitates limits of the cloud that tidelog does not need: `on`
    or `off`."""

    jwt_issuer: str = ""
    """Identity provider whose [JSON Web Tokens](jwt.md) clients may authenticate by: the claim
    `iss`, exactly. Empty means none; else `jwt_audience` and `jwt_keys` are needed as well."""

    jwt_audience: str = ""
    """Name of this cluster at the identity provider, which must be in the claim `aud`."""

    jwt_keys: str = ""
    """Public keys of the identity provider, a JSON Web Key Set: a file, or its address by HTTPS."""

    jwt_algorithms: str = DEFAULT_ALGORITHMS
    """Algorithms that a token may have, with commas: some of `RS256`, `RS384`, `RS512`, `PS256`,
    `PS384`, `PS512`, `ES256`, `ES384`, `ES512`, `EdDSA`, `Ed25519`."""

    jwt_user_claim: str = "sub"
    """Claim with the name of the user; dots lead into objects."""

    jwt_user_prefix: str = ""
    """Put before the name of the user, such as `corp/`, so that no token has the name of a user of
    the cluster."""

    jwt_roles_claim: str = ""
    """Claim with names of roles that the user has for the time of the token: a list, or a text with
    spaces. Empty means none."""

    bootstrap_admin: str = ""
    """File with the [first administrator](operations.md#first-administrator), which only its owner
    may read. A new cluster has this user before it serves clients; a cluster that has users ignores
    it. Empty means none."""

    master_key_file: str = ""
    """File with the master keys of [encryption at rest](encryption.md), which only this user may
    read: `tidelog key create-master`. The broker reads a change within `maintenance_interval_ms`.
    Empty means none."""

    master_key_command: str = ""
    """Command that prints such a file, instead of `master_key_file`: a client of a key store. It
    runs without a shell, at the start and each minute."""

    broker_rack: str = ""
    """The rack, zone or machine with which this broker fails together; replicas of a partition are
    spread over racks. Empty means a rack of its own."""

    socket_request_max_bytes: int = _number(16 * MiB, low=2 * MiB, high=256 * MiB)
    """Maximum size of a request; the broker refuses longer ones. Must hold the largest batch of any
    topic; with `peers` at least 9 MiB."""

    queued_max_request_bytes: int = _number(64 * MiB, low=4 * MiB, high=1 << 40)
    """Memory for requests that are being received, of all connections together. Connections that
    need more wait for it. At least twice `socket_request_max_bytes`."""

    max_connections: int = _number(10_000, low=1, high=1_000_000)
    """Maximum number of connections. A further one takes the place of one that has sent no HELLO;
    without such a one the broker closes it. With `peers`, it keeps 64 more for other nodes."""

    max_in_flight_requests_per_connection: int = _number(4096, low=1, high=1_000_000)
    """Maximum number of unanswered requests of one connection; the broker reads no more of it
    before it has answered some. Each long poll counts; clients of tidelog make further connections
    for more of them than half of this."""

    max_queued_response_bytes: int = _number(8 * MiB, low=1 << 16, high=1 << 30)
    """Maximum size of the queued replies of one connection; above it the broker reads no more of
    its requests."""

    fetch_max_bytes: int = _number(64 * MiB, low=MiB, high=128 * MiB)
    """Maximum size of one fetch reply, above the limit of a request too."""

    stalled_request_timeout_ms: int = _number(30_000, low=100, high=24 * _HOUR_MS)
    """Time after which the broker closes a connection that has sent half a frame and then nothing.
    While others wait for memory, it also closes a connection that has held some for so long without
    completing its frame."""

    metrics_objects_max: int = _number(1_000, low=0, high=1_000_000)
    """Maximum number of topics, of queues and of groups with [metrics](metrics.md) of their own,
    each; a queue with thresholds always has them. Other topics and queues share the label
    `_other`; of groups, the first by name have metrics."""

    log_flush_interval_ms: int = _number(5_000, low=10, high=24 * _HOUR_MS)
    """Interval of background syncs for topics with `durability = replicated`."""

    maintenance_interval_ms: int = _number(5_000, low=10, high=_HOUR_MS)
    """Interval at which segments are rolled, deleted by age and size, and checked for
    compaction."""

    min_free_disk_bytes: int = _number(0, low=0, high=1 << 50)
    """Minimum free space of the disk. Below it topics are read-only until there is room; the rest
    is for the metadata, checkpoints and repairs. Checked every `maintenance_interval_ms`."""

    log_retention_disk_bytes: int = _number(0, low=0, high=1 << 50)
    """Maximum size of all topics on this broker. Above it their oldest segments are deleted, also
    those that `retention_ms` would keep; 0 is no limit. Journals of queues and staging logs do not
    count."""

    max_transaction_bytes_per_partition: int = _number(4096 * MiB, low=MiB, high=1 << 50)
    """Maximum bytes on disk, for one partition, of records that are staged and not committed, or
    committed and not appended. The broker rejects further stages with a retriable error."""

    scrub_max_bytes_per_second: int = _number(4 * MiB, low=0, high=1 << 40)
    """Rate at which scrubbing reads records on disk, to find damage before a client needs them; 0
    turns scrubbing off. A small batch counts as 4 KiB."""

    scrub_interval_ms: int = _number(24 * _HOUR_MS, low=1_000, high=10_000 * 24 * _HOUR_MS)
    """Minimum time between the starts of two rounds of scrubbing, however few bytes there are."""

    log_cleaner_max_bytes_per_second: int = _number(16 * MiB, low=64 << 10, high=1 << 40)
    """Rate at which compaction reads topics, all together. A small batch counts as 4 KiB."""

    log_cleaner_dedupe_buffer_bytes: int = _number(64 * MiB, low=34 * MiB, high=1 << 40)
    """Memory for the keys of the log that is being compacted; one log is compacted at a time. A key
    takes 32 bytes. More keys take more rounds, not more memory."""

    clock_skew_max_ms: int = _number(30_000, low=100, high=_HOUR_MS)
    """Maximum difference of this broker's clock from the time on which a majority of the brokers
    agrees. Beyond it, the broker deletes nothing by time, and warns of `clock_skewed`."""

    replica_lag_time_max_ms: int = _number(10_000, low=100, high=_HOUR_MS)
    """Time after which a follower that has not caught up with its leader leaves the ISR."""

    group_consumer_session_timeout_ms: int = _number(45_000, low=1_000, high=_HOUR_MS)
    """Time without a heartbeat after which a member of a consumer group is fenced, and other
    members read its partitions. The value on the node that leads the cluster holds for this setting
    and the next four: set the same everywhere."""

    group_consumer_heartbeat_interval_ms: int = _number(5_000, low=100, high=_HOUR_MS)
    """Interval of the heartbeats of members of consumer groups; it bounds how late they learn of a
    change. `group_consumer_session_timeout_ms` must be at least twice this and 5 s more."""

    group_initial_rebalance_delay_ms: int = _number(3_000, low=0, high=_HOUR_MS)
    """Time that the first member of an empty group waits for others."""

    group_replacement_delay_ms: int = _number(5_000, low=0, high=15_000)
    """Time that the partitions of a member that left wait for a new member to replace it."""

    offsets_retention_ms: int = _number(168 * _HOUR_MS, low=_HOUR_MS, high=10_000 * 24 * _HOUR_MS)
    """Time after which a consumer group without members and without lag is deleted."""

    hot_keys_sampling: str = _choice("on", allowed=SWITCH)
    """Whether this broker samples the keys of produced records, for `tidelog topic hot`: `on` or
    `off`. Sampling takes at most 0.5 % of a core."""

    audit: str = _choice("off", allowed=AUDIT_MODES)
    """Whether this broker writes [audit records](audit.md) to the topic `audit@cluster`: `off`,
    `on`, or `required`, which refuses administration while they cannot be written. Set the same
    everywhere."""

    shutdown_grace_ms: int = _number(10_000, low=0, high=_HOUR_MS)
    """Maximum time that a shutdown waits for requests under way."""

    max_open_files: int = _number(512, low=16, high=1_000_000)
    """Maximum number of segment files kept open."""

    log_format: str = _choice("console", allowed=LOG_FORMATS)
    """Format of the log of the `tidelog` command: `console` for people, `json` for programs."""

    log_level: str = _choice("info", allowed=LOG_LEVELS)
    """Lowest severity in that log: `debug`, `info`, `warning` or `error`."""

    topic_defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    """Default settings of new topics, by name."""

    def __post_init__(self) -> None:
        """Raise if a setting is out of range or contradicts another.

        Raises:
            ConfigError: The message lists every problem.
        """
        problems = [problem for item in fields(self) for problem in self._out_of_range(item.name)]
        if self.queued_max_request_bytes < 2 * self.socket_request_max_bytes:
            problems.append(
                f"queued_max_request_bytes must be at least twice socket_request_max_bytes,"
                f" {2 * self.socket_request_max_bytes}, not {self.queued_max_request_bytes}"
            )
        if self.peers and self.socket_request_max_bytes < FRAME_BYTES_OF_PEERS:
            problems.append(
                f"socket_request_max_bytes must be at least {FRAME_BYTES_OF_PEERS} in a cluster"
                " of several nodes, to hold an entry of the metadata log, not"
                f" {self.socket_request_max_bytes}"
            )
        if self.master_key_file and self.master_key_command:
            problems.append("master_key_file and master_key_command exclude each other; set one")
        if self.tls != "off" and not self.tls_directory:
            problems.append(
                f"tls is {self.tls} without a certificate; set tls_directory (--tls DIR)"
            )
        if not self.data_dir:
            problems.append("data_dir must not be empty")
        problems += self._wrong_addresses()
        problems += jwt_problems(
            self.jwt_issuer,
            self.jwt_audience,
            self.jwt_keys,
            algorithms=self.jwt_algorithms,
        )
        problems += self._wrong_sqs_settings()
        problems += self._wrong_peers()
        problems += self._wrong_topic_defaults()
        problems += self._wrong_group_settings()
        if problems:
            raise ConfigError("; ".join(problems))

    @property
    def peer_addresses(self) -> dict[int, tuple[str, int]]:
        """Host and port of the nodes in `peers`, by node id."""
        return parse_peers(self.peers)

    @property
    def jwt_rules(self) -> JwtRules:
        """Which JSON Web Tokens prove an identity; of use with a `jwt_issuer` alone."""
        return JwtRules(
            self.jwt_issuer,
            self.jwt_audience,
            parse_algorithms(self.jwt_algorithms),
            self.jwt_user_claim,
            self.jwt_roles_claim,
            self.jwt_user_prefix,
        )

    @property
    def groups(self) -> GroupConfig:
        """Timings of consumer groups; those that are not settings have their defaults."""
        return GroupConfig(
            heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            waiting_interval_ms=min(1_000, self.group_consumer_heartbeat_interval_ms),
            session_timeout_ms=self.group_consumer_session_timeout_ms,
            max_poll_interval_ms=max(1_800_000, self.group_consumer_session_timeout_ms),
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            replacement_delay_ms=self.group_replacement_delay_ms,
            offsets_retention_ms=self.offsets_retention_ms,
        )

    @property
    def max_message_bytes_limit(self) -> int:
        """The largest `max_message_bytes` that a topic may have on this broker."""
        return self.socket_request_max_bytes - _FRAME_OVERHEAD_BYTES

    def _out_of_range(self, name: str) -> list[str]:
        value: object = getattr(self, name)
        limits = FIELDS[name].metadata
        if "low" in limits and cast("int", value) < limits["low"]:
            return [f"{name} must be at least {limits['low']}, not {value}"]
        if "high" in limits and cast("int", value) > limits["high"]:
            return [f"{name} must be at most {limits['high']}, not {value}"]
        if "allowed" in limits and value not in limits["allowed"]:
            return [f"{name} is {value!r}, it must be one of {', '.join(limits['allowed'])}"]
        return []

    def _wrong_addresses(self) -> list[str]:
        problems: list[str] = []
        addresses = {
            "listen": self.listen,
            "advertised": self.advertised,
            "http_listen": self.http_listen,
            "sqs_listen": self.sqs_listen,
        }
        for name, address in addresses.items():
            if not address and name != "listen":
                continue
            try:
                _, port = parse_address(address)
            except ConfigError as error:
                problems.append(f"{name}: {error}")
                continue
            if not port and name == "advertised":
                problems.append("advertised: clients cannot connect to port 0")
        return problems

    def _wrong_sqs_settings(self) -> list[str]:
        if self.sqs_listen:
            return []
        given = {
            "sqs_authentication is off (--sqs-no-auth)": self.sqs_authentication == "off",
            "sqs_strict is on": self.sqs_strict == "on",
        }
        return [
            f"{setting} without an address of SQS; set sqs_listen (--sqs-listen HOST:PORT)"
            for setting, is_given in given.items()
            if is_given
        ]

    def _wrong_peers(self) -> list[str]:
        try:
            addresses = parse_peers(self.peers)
        except ConfigError as error:
            return [f"peers: {error}"]
        if addresses and self.node_id not in addresses:
            own_id = self.node_id
            return [f"peers: node {own_id} itself is missing; add {own_id}=HOST:PORT to the list"]
        return []

    def _wrong_group_settings(self) -> list[str]:
        margin_ms = GroupConfig().lease_margin_ms
        least_ms = 2 * self.group_consumer_heartbeat_interval_ms + margin_ms
        if self.group_consumer_session_timeout_ms >= least_ms:
            return []
        problem = (
            f"group_consumer_session_timeout_ms must be at least {least_ms}, twice"
            f" group_consumer_heartbeat_interval_ms and {margin_ms} more, not"
            f" {self.group_consumer_session_timeout_ms}"
        )
        return [problem]

    def _wrong_topic_defaults(self) -> list[str]:
        try:
            check_settings(self.topic_defaults, replication_factor=REPLICATION_FACTOR_MAX)
            log = topic_config(self.topic_defaults).log
        except InvalidConfigError as error:
            return [f"topic_defaults: {error}"]
        if log.max_message_bytes > max(self.max_message_bytes_limit, MiB):
            allowed = self.max_message_bytes_limit
            name = "max_message_bytes is above"
            return [f"topic_defaults: {name} {allowed}, the maximum of socket_request_max_bytes"]
        return []


DEFAULT = "default"
"""The source of a setting that nothing sets."""
FIELDS = {item.name: item for item in fields(BrokerConfig)}
"""Every setting, by name, with its limits as metadata."""


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, or of `HOST` with the default port.

    An IPv6 address stands in brackets, or without them when no port follows.

    Raises:
        ConfigError: The text is no address.
    """
    found = _ADDRESS.fullmatch(text)
    port = DEFAULT_PORT if found is None or found["port"] is None else int(found["port"])
    if found is None or port > _PORT_MAX:
        raise ConfigError(f"{text!r} is not an address; write HOST:PORT, such as 127.0.0.1:8433")
    return found["name"] or found["bracketed"] or found["bare"], port


def format_address(host: str, port: int) -> str:
    """Return `HOST:PORT`; the inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_peers(text: str) -> dict[int, tuple[str, int]]:
    """Return host and port by node id of `1=HOST:PORT,2=HOST:PORT`; no nodes of an empty text.

    Raises:
        ConfigError: The text is no such list, or contains a node or an address twice.
    """
    addresses: dict[int, tuple[str, int]] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        number, _, address = item.partition("=")
        if _COUNT.fullmatch(number.strip()) is None or not 1 <= int(number) < 1 << 31:
            raise ConfigError(
                f"{item!r} is no node; write NODE_ID=HOST:PORT, such as 1=10.0.0.1:8433"
            )
        host, port = parse_address(address.strip())
        if not port:
            raise ConfigError(f"{item!r} has port 0, to which clients cannot connect")
        if int(number) in addresses:
            raise ConfigError(f"node {int(number)} is listed twice")
        if (host, port) in addresses.values():
            raise ConfigError(f"two nodes have the address {address.strip()}")
        addresses[int(number)] = (host, port)
    return addresses


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """The settings in force, and the source of each."""

    config: BrokerConfig
    sources: Mapping[str, str]
    """The source of every setting, in the order of the fields: `default`, the name of the file, the
    name of the variable, or the flag."""


def resolve_config(
    *,
    file: str | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    defaults: Mapping[str, str] | None = None,
) -> ResolvedConfig:
    """Return the settings: defaults, then the TOML file, then the environment, then flags.

    `defaults` replaces defaults of the fields.
    A variable `TIDELOG_DATA_DIR` sets `data_dir`, and so on for every simple field. Other variables
    with this prefix are ignored: Kubernetes sets some for a service named tidelog. A flag that is
    `None` was not given.

    Raises:
        ConfigError: A setting is unknown, unreadable or out of range; one line lists all problems.
    """
    replaced = {name: (value, DEFAULT) for name, value in (defaults or {}).items()}
    given = replaced | _given(file, environment, flags)
    if "tls_directory" in given and given["tls_directory"][0]:
        given.setdefault("tls", ("require", given["tls_directory"][1]))
    checked: dict[str, object] = {}
    problems: list[str] = []
    for name, (value, source) in given.items():
        try:
            checked[name] = _checked(name, value)
        except (ConfigError, InvalidConfigError) as error:
            problems.append(f"{source}: {error}")
    try:
        # Even after problems, so that the error lists all of them at once.
        config = BrokerConfig(**checked)  # type: ignore[arg-type]  # checked by _checked
    except ConfigError as error:
        raise ConfigError("; ".join([*problems, str(error)])) from error
    if problems:
        raise ConfigError("; ".join(problems))
    sources = {name: given[name][1] if name in given else DEFAULT for name in FIELDS}
    return ResolvedConfig(config, sources)


def _given(
    file: str | None, environment: Mapping[str, str], flags: Mapping[str, object]
) -> dict[str, tuple[object, str]]:
    """Return the values that take precedence, with their sources, by name of the setting."""
    given: dict[str, tuple[object, str]] = {}
    if file is not None:
        given.update({name: (value, file) for name, value in _read_file(file).items()})
    for name in FIELDS:
        variable = _ENVIRONMENT_PREFIX + name.upper()
        if variable in environment:
            given[name] = (environment[variable], variable)
    for name, value in flags.items():
        if value is not None:
            given[name] = (value, "--" + name.replace("_", "-"))
    return given


def _read_file(file: str) -> dict[str, object]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read the configuration file {file}: {reason}") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the configuration file {file} is not TOML: {error}") from error


def _checked(name: str, value: object) -> object:
    """Return a value of the field's type, parsed from text where the type allows that."""
    if name not in FIELDS:
        defaults = (f"topic_defaults.{each}" for each in SETTINGS)
        raise ConfigError(unknown_setting(name, FIELDS, unlisted=defaults))
    kind = FIELDS[name].type
    if kind is str and isinstance(value, str):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is int and isinstance(value, str):
        return _parse_number(name, value)
    if name == "topic_defaults" and isinstance(value, dict):
        settings = cast("dict[object, object]", value)
        return {str(key): str(item) for key, item in settings.items()}
    wanted = {int: "a whole number", str: "text"}.get(
        cast("type", kind), "a table of names and values"
    )
    raise ConfigError(f"{name} is {value!r}, which is not {wanted}")


def _parse_number(name: str, text: str) -> int:
    if name.endswith("_ms"):
        return parse_duration_ms(name, text)
    if "bytes" in name:
        return parse_size_bytes(name, text)
    if _COUNT.fullmatch(text.strip()) is None:
        raise ConfigError(f"{name} is {text!r}, it must be a whole number")
    return int(text)
