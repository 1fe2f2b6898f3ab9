"""Settings of one broker process.

The only place where a configuration file or the environment is read. What agrees in a whole
cluster, such as the settings of topics, is in the metadata instead.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import cast

from coordinator.topic_config import check_settings, parse_duration_ms, parse_size_bytes
from wire.errors import BrokerError, ConfigError

DEFAULT_PORT = 8433
_ENVIRONMENT_PREFIX = "TIDELOG_"
_PORT_MAX = 0xFFFF
MiB = 1 << 20

LOG_FORMATS = ("console", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What one broker process is told; every field can stand in the TOML file."""

    data_dir: str = "tidelog-data"
    """Directory of all data; made when it is missing."""

    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    """HOST:PORT to listen on; port 0 takes a free one."""

    advertised: str = ""
    """HOST:PORT that clients are told to connect to; empty means the address at which the
    asking client reached this broker."""

    node_id: int = 1
    """Number of this broker in its cluster; fixed once a data directory was made with it."""

    frame_bytes_max: int = 16 * MiB
    """Longer requests are refused. Must hold the largest batch of any topic."""

    request_memory_bytes: int = 64 * MiB
    """Memory for requests that are being received, of all connections together. Connections
    that need more wait for it."""

    connections_max: int = 10_000
    """Further connections are closed at once."""

    in_flight_requests_max: int = 256
    """Unanswered requests of one connection before no more of it are read."""

    reply_bytes_max: int = 8 * MiB
    """Replies of one connection that may wait for a slow reader before no more of its
    requests are read."""

    fetch_bytes_max: int = 64 * MiB
    """Upper bound of one fetch reply, whatever was asked for."""

    stalled_frame_ms: int = 30_000
    """A connection that sent half a frame and then nothing for so long is closed."""

    flush_interval_ms: int = 5_000
    """Topics with `durability = replicated` are synced in the background this often."""

    maintenance_interval_ms: int = 5_000
    """How often segments are rolled and deleted by age and size."""

    shutdown_grace_ms: int = 10_000
    """How long a shutdown waits for requests under way."""

    open_files_max: int = 512
    """Segment files kept open."""

    log_format: str = "console"
    """How the `tidelog` command writes its log: `console` for people, `json` for programs."""

    log_level: str = "info"
    """The least severe of what it writes: `debug`, `info`, `warning` or `error`."""

    topic_defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    """Settings of new topics that do not give their own, by name."""

    def __post_init__(self) -> None:
        """Check ranges and relations.

        Raises:
            ConfigError: Listing every problem.
        """
        problems = [
            f"{name} must be at least {low}, not {value}"
            for name, value, low in (
                ("node_id", self.node_id, 1),
                ("frame_bytes_max", self.frame_bytes_max, 2 * MiB),
                ("connections_max", self.connections_max, 1),
                ("in_flight_requests_max", self.in_flight_requests_max, 1),
                ("reply_bytes_max", self.reply_bytes_max, 1 << 16),
                ("fetch_bytes_max", self.fetch_bytes_max, MiB),
                ("stalled_frame_ms", self.stalled_frame_ms, 100),
                ("flush_interval_ms", self.flush_interval_ms, 10),
                ("maintenance_interval_ms", self.maintenance_interval_ms, 10),
                ("open_files_max", self.open_files_max, 16),
            )
            if value < low
        ]
        if self.request_memory_bytes < 2 * self.frame_bytes_max:
            problems.append(
                f"request_memory_bytes must be at least twice frame_bytes_max,"
                f" {2 * self.frame_bytes_max}, not {self.request_memory_bytes}"
            )
        for name, address in (("listen", self.listen), ("advertised", self.advertised)):
            try:
                if address or name == "listen":
                    parse_address(address)
            except ConfigError as error:
                problems.append(f"{name}: {error}")
        problems += [
            f"{name} is {value!r}, it must be one of {', '.join(allowed)}"
            for name, value, allowed in (
                ("log_format", self.log_format, LOG_FORMATS),
                ("log_level", self.log_level, LOG_LEVELS),
            )
            if value not in allowed
        ]
        try:
            check_settings(self.topic_defaults)
        except BrokerError as error:
            problems.append(f"topic_defaults: {error}")
        if problems:
            raise ConfigError("; ".join(problems))


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `[IPv6]:PORT` or `HOST` with the default port.

    Raises:
        ConfigError: The text is none of these.
    """
    host, separator, port = text.rpartition(":")
    if not separator or (host.count(":") and not host.startswith("[")):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or int(port) > _PORT_MAX:
        raise ConfigError(f"{text!r} is not an address; write HOST:PORT, such as 127.0.0.1:8433")
    return host, int(port)


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """The settings in force, and where each of them comes from."""

    config: BrokerConfig
    sources: Mapping[str, str]
    """For every setting, in the order of the fields: `default`, the name of the file, the name
    of the variable, or the flag."""


def load_config(
    *, file: str | None, environment: Mapping[str, str], flags: Mapping[str, object]
) -> BrokerConfig:
    """Return the settings; see `resolve_config`."""
    return resolve_config(file=file, environment=environment, flags=flags).config


def resolve_config(
    *, file: str | None, environment: Mapping[str, str], flags: Mapping[str, object]
) -> ResolvedConfig:
    """Return the settings: defaults, then the TOML file, then the environment, then flags.

    A variable `TIDELOG_DATA_DIR` sets `data_dir`, and so on for every simple field. A flag that
    is `None` was not given.

    Raises:
        ConfigError: Something is unknown, unreadable or out of range; one line says all of it.
    """
    given: dict[str, tuple[object, str]] = {}
    if file is not None:
        given.update({name: (value, file) for name, value in _read_file(file).items()})
    for name in _FIELD_TYPES:
        variable = _ENVIRONMENT_PREFIX + name.upper()
        if variable in environment:
            given[name] = (environment[variable], variable)
    for name, value in flags.items():
        if value is not None:
            given[name] = (value, "--" + name.replace("_", "-"))
    checked: dict[str, object] = {}
    problems: list[str] = []
    for name, (value, source) in given.items():
        try:
            checked[name] = _checked(name, value)
        except (ConfigError, BrokerError) as error:
            problems.append(f"{source}: {error}")
    if problems:
        raise ConfigError("; ".join(problems))
    config = BrokerConfig(**checked)  # type: ignore[arg-type]  # checked by _checked
    sources = {name: given[name][1] if name in given else "default" for name in _FIELD_TYPES}
    return ResolvedConfig(config, sources)


_FIELD_TYPES = {item.name: item.type for item in fields(BrokerConfig)}


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
    """Return a value of the field's type, read from text where that makes sense."""
    kind = _FIELD_TYPES.get(name)
    if kind is None:
        raise ConfigError(f"there is no setting {name!r}; there are {', '.join(_FIELD_TYPES)}")
    if kind is str and isinstance(value, str):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is int and isinstance(value, str):
        if name.endswith("_ms"):
            return parse_duration_ms(name, value)
        return parse_size_bytes(name, value)
    if name == "topic_defaults" and isinstance(value, dict):
        settings = cast("dict[object, object]", value)
        return {str(key): str(item) for key, item in settings.items()}
    wanted = {int: "a number", str: "text"}.get(cast("type", kind), "a table of names and values")
    raise ConfigError(f"{name} is {value!r}, which is not {wanted}")
