"""Connection and write options, parsed from Spark's strings with names in lower case.

Pure: no clock, no I/O, no pyspark. An invalid option raises an error of one line that says what is
valid; the error of an unknown name suggests the nearest known one.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal, Self, TypeVar, cast, final

from tidelog.client.cluster.address import Address, parse_addresses
from tidelog.spark_connector.kafka_names import EQUIVALENTS, advice, reason_to_ignore
from tidelog.wire.config.durations import parse_duration_ms
from tidelog.wire.errors import ConfigError, InvalidConfigError

SERVERS = "bootstrap.servers"
PROFILE = "client.profile"
SETTING_NAMES: Final = {
    "client.user": "user",
    "client.password": "password",
    "client.token": "token",
    "client.tls.ca": "tls_ca",
    "client.tls.certificate": "tls_certificate",
    "client.tls.key": "tls_key",
}
"""Settings of `ClientConfig` by option: environment and profile of the driver have them as well.
Spark redacts options whose names contain `password` or `token`."""
CONNECTION_NAMES: Final = (
    SERVERS,
    "client.request.timeout.ms",
    "client.connect.timeout.ms",
    "client.id",
    PROFILE,
    *SETTING_NAMES,
)
"""Options of every source and sink."""

_HINTS: Final = {
    "path": "tidelog has topics, no paths: call load() or save() without one",
    "topic": "it is for writes: subscribe names the topics to read",
    "subscribe": "it is for reads: topic names the topic to write",
    "subscribepattern": "it is for reads: topic names the topic to write",
    "assign": "it is for reads: topic names the topic to write",
    "checkpointlocation": "it is for writeStream",
    "queryname": "it is for writeStream",
}
"""Advice for names that are known elsewhere."""
_LIKELY: Final = 0.7
"""Similarity from which on one name is likely a misspelling of another."""
_REQUEST_TIMEOUT_MS: Final = 30_000
_CONNECT_TIMEOUT_MS: Final = 3_000
"""A user learns within 5 s, with the time that Spark needs, that no broker is there."""
_NUMBER_MAX: Final = (1 << 63) - 1
Choice = TypeVar("Choice", bound=str)


@final
class GivenOptions:
    """The options of one source or sink, by their documented names."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        """Store `given`, whose names may be in any case.

        Raises:
            ConfigError: A name is not in `known`, or two names mean the same option.
        """
        by_lower = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        self.ignored: list[str] = []
        """A line for each option without an effect, which says why."""
        for spelled, value in given.items():
            lower = spelled.lower()
            name = by_lower.get(EQUIVALENTS.get(lower, lower).lower())
            if name is None:
                why = reason_to_ignore(lower, value, by_lower)
                if why is None:
                    raise _unknown(spelled, by_lower)
                self.ignored.append(f"option {spelled!r} is ignored: {why}")
                continue
            if name in self._values:
                raise ConfigError(f"{name} is given twice, under two spellings; give it once")
            self._values[name] = value

    def __contains__(self, name: str) -> bool:
        """Return whether an option is given."""
        return name in self._values

    def given(self, names: Iterable[str]) -> list[str]:
        """Return the given options among `names`, in the order of `names`."""
        return [name for name in names if name in self._values]

    def ignore(self, names: Iterable[str], why: str) -> None:
        """Note that the given options among `names` have no effect."""
        self.ignored += [f"option {name!r} is ignored: {why}" for name in self.given(names)]

    def text(self, name: str) -> str | None:
        """Return a stripped string; `None` if the option is not given.

        Raises:
            ConfigError: The string is empty.
        """
        value = self._values.get(name)
        if value is None:
            return None
        if not value.strip():
            raise ConfigError(f"{name} must not be empty; leave it out instead")
        return value.strip()

    def secret(self, name: str) -> str | None:
        """Return a string as it is; `None` if the option is not given."""
        return self._values.get(name)

    def number(self, name: str, *, at_least: int = 1) -> int | None:
        """Return a whole number; `None` if the option is not given.

        Raises:
            ConfigError: The value is not a whole number, or below `at_least`.
        """
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII) or int(text) > _NUMBER_MAX:
            raise ConfigError(f"{name} must be a whole number, not {text!r}")
        if int(text) < at_least:
            raise ConfigError(f"{name} must be at least {at_least}, not {text}")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean option.

        Raises:
            ConfigError: The value is neither true nor false.
        """
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"

    def choice(self, name: str, choices: Sequence[Choice], *, default: Choice) -> Choice:
        """Return one of `choices`, given in any case.

        Raises:
            ConfigError: The value is not among `choices`.
        """
        text = self.text(name)
        if text is None:
            return default
        for choice in choices:
            if choice.lower() == text.lower():
                return choice
        raise ConfigError(f"{name} must be {' or '.join(choices)}, not {text!r}")

    def duration_ms(self, name: str, *, default: int) -> int:
        """Return a duration in milliseconds, written as `90s`, `1h30m` or plain milliseconds.

        Raises:
            ConfigError: The value is not a duration, or 0.
        """
        text = self.text(name)
        if text is None:
            return default
        try:
            found_ms = parse_duration_ms(name, text)
        except InvalidConfigError as error:
            raise ConfigError(str(error)) from error
        if not found_ms:
            raise ConfigError(f"{name} must be above 0")
        return found_ms

    def json_object(self, name: str) -> dict[str, Any] | None:
        """Return a JSON object; `None` if the option is not given.

        Raises:
            ConfigError: The value is not a JSON object, or has a duplicate key.
        """
        text = self.text(name)
        return None if text is None else parse_object(name, text)


def parse_object(name: str, text: str) -> dict[str, Any]:
    """Return a JSON object without duplicate keys.

    Raises:
        ConfigError: `text` is not such an object; the message begins with `name`.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ConfigError(f"{name} names something twice: {text}")
        return found

    try:
        found = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{name} must be a JSON object, not {text}")
    return cast("dict[str, Any]", found)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Addresses and timeouts of brokers; equal options may share connections."""

    addresses: tuple[Address, ...]
    request_timeout_ms: int = _REQUEST_TIMEOUT_MS
    """Milliseconds to wait for a reply, and to retry a request."""
    connect_timeout_ms: int = _CONNECT_TIMEOUT_MS
    """Milliseconds for one connection, and in all for the first one of a driver."""
    client_id: str = "spark"
    """Client id that brokers log."""
    user: str | None = None
    """Name of the user as which each connection authenticates."""
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """Token or JWT, instead of user and password."""
    tls_ca: str | None = None
    """File of the trusted CAs, on each machine; see `ClientConfig`."""
    tls_certificate: str | None = None
    tls_key: str | None = None

    @classmethod
    def parse(cls, given: GivenOptions) -> Self:
        """Parse the options in `CONNECTION_NAMES`.

        Raises:
            ConfigError: No broker is given, or a value is invalid.
        """
        servers = given.text(SERVERS)
        if servers is None:
            raise ConfigError(f'{SERVERS} is missing; say .option("{SERVERS}", "host:port")')
        certificate = given.given(("client.tls.certificate", "client.tls.key"))
        if len(certificate) == 1 or (certificate and "client.tls.ca" not in given):
            raise ConfigError(
                "client.tls.certificate and client.tls.key go together, and need client.tls.ca"
            )
        request = given.duration_ms("client.request.timeout.ms", default=_REQUEST_TIMEOUT_MS)
        connect = given.duration_ms("client.connect.timeout.ms", default=_CONNECT_TIMEOUT_MS)
        return cls(
            addresses=tuple(parse_addresses(servers)),
            request_timeout_ms=request,
            connect_timeout_ms=connect,
            client_id=given.text("client.id") or "spark",
            user=given.text("client.user"),
            password=given.secret("client.password"),
            token=given.text("client.token"),
            tls_ca=given.text("client.tls.ca"),
            tls_certificate=given.text("client.tls.certificate"),
            tls_key=given.text("client.tls.key"),
        )


WRITE_NAMES: Final = (
    *CONNECTION_NAMES,
    "topic",
    "includeHeaders",
    "compression",
    "transactionalId",
    "transactionalBatchId",
    "stage.timeout.ms",
)
_SPARK_NAMES: Final = ("checkpointLocation", "queryName")
"""Options of streaming queries that Spark also passes to the sink."""
CompressionName = Literal["none", "lz4", "zstd"]
_COMPRESSIONS: Final[tuple[CompressionName, ...]] = ("none", "lz4", "zstd")
_STAGE_TIMEOUT_MS: Final = 120_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of the sink."""

    connection: ConnectionOptions
    topic: str | None = None
    """Topic of all rows; `None`: the column `topic` names it per row."""
    include_headers: bool = True
    """Whether a column `headers` is written."""
    compression: CompressionName = "none"
    transactional_id: str | None = None
    """Name of the transaction, for exactly-once writes; `None`: a name for this query or job."""
    transactional_batch_id: int | None = None
    """Number of this write among those of its `transactional_id`, 0 to 2^63 - 1; `None`: 0. Only
    for batches: Spark numbers the micro-batches of a stream."""
    stage_timeout_ms: int = _STAGE_TIMEOUT_MS
    """Milliseconds until the records of one request must be durable."""
    ignored: tuple[str, ...] = ()
    """A line for each given option without an effect."""

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> Self:
        """Parse the options of a sink.

        Raises:
            ConfigError: An option is unknown, missing or invalid.
        """
        given = GivenOptions(raw, (*WRITE_NAMES, *_SPARK_NAMES))
        if "transactionalBatchId" in given and "transactionalId" not in given:
            raise ConfigError(
                "transactionalBatchId numbers the writes of a transactionalId; say"
                ' .option("transactionalId", ...) as well'
            )
        return cls(
            connection=ConnectionOptions.parse(given),
            topic=given.text("topic"),
            include_headers=given.flag("includeHeaders", default=True),
            compression=given.choice("compression", _COMPRESSIONS, default="none"),
            transactional_id=given.text("transactionalId"),
            transactional_batch_id=given.number("transactionalBatchId", at_least=0),
            stage_timeout_ms=given.duration_ms("stage.timeout.ms", default=_STAGE_TIMEOUT_MS),
            ignored=tuple(given.ignored),
        )


def _unknown(spelled: str, by_lower: Mapping[str, str]) -> ConfigError:
    lower = spelled.lower()
    found = advice(lower) or _HINTS.get(lower)
    if found is None:
        nearest = get_close_matches(lower, by_lower, n=1, cutoff=_LIKELY)
        found = f"did you mean {by_lower[nearest[0]]}?" if nearest else "leave it out"
    return ConfigError(f"option {spelled!r} is not known; {found}")
