"""Options of the source: selection, start and end offsets, and rate limits.

Pure: no clock, no I/O, no pyspark. Names and meanings are those of Spark's Kafka source where it
has an equivalent; `docs/spark.md` has the table.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar, cast, final

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.options import CONNECTION_NAMES, ConnectionOptions, GivenOptions
from tidelog.spark_connector.read.moments import Moment, parse_moment
from tidelog.spark_connector.value_options import VALUE_NAMES, ValueOptions
from tidelog.wire.errors import ConfigError

EARLIEST: Final = -2
"""Offset in JSON that stands for the log start offset."""
LATEST: Final = -1
"""Offset in JSON that stands for the high watermark."""
OFFSET_MAX: Final = (1 << 63) - 1

_SELECTIONS: Final = (
    "subscribe", "subscribePattern", "assign", "queueDeadLetters", "queueHistory",
)  # fmt: skip


class _LimitNames(NamedTuple):
    """Names of the options for the start or the end."""

    time: str
    times: str
    offsets: str


_STARTING: Final = _LimitNames("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDING: Final = _LimitNames("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_STRATEGY: Final = "startingOffsetsByTimestampStrategy"
_ONLY_STREAM: Final = (
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger",
    "groupId", "groupIdPrefix",
)  # fmt: skip
_ONLY_RECORDS: Final = (
    "includeHeaders", "largeMessages", "largeMessageMaxBytes", "maxBytesPerTrigger", "groupId",
    "groupIdPrefix", *VALUE_NAMES,
)  # fmt: skip
READ_NAMES: Final = (
    *CONNECTION_NAMES, *_SELECTIONS, *_STARTING, *_ENDING, *_ONLY_STREAM, _STRATEGY,
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders",
    "fetch.timeout.ms", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "isolation",
    "largeMessages", "largeMessageMaxBytes", "partitions", "columns", *VALUE_NAMES,
)  # fmt: skip
RECORDS_PER_TASK: Final = 250_000
"""Default maximum of records for one task of a batch; a task has an overhead of about 100 ms."""
_MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
_FETCH_TIMEOUT_MS: Final = 120_000
_RETRY_COUNT: Final = 3
_RETRY_INTERVAL_MS: Final = 1000
_LARGE_BYTES_MAX: Final = 64 << 20

_EPOCH: Final = Moment(0)

Strategy = Literal["error", "latest"]
LargeMessages = Literal["join", "chunks"]
Isolation = Literal["read_committed", "read_uncommitted"]
Parsed = TypeVar("Parsed", int, Moment)


@final
@dataclass(frozen=True, slots=True)
class Selection:
    """Selected partitions; exactly one field is set besides `numbers`."""

    topics: tuple[str, ...] = ()
    """`subscribe`: all partitions of these topics, sorted."""
    pattern: str | None = None
    """`subscribePattern`: topics whose whole name matches this Python regular expression."""
    partitions: tuple[TopicPartition, ...] = ()
    """`assign`: exactly these partitions, sorted."""
    dead_letters_of: str | None = None
    """`queueDeadLetters`: the name of a queue."""
    history_of: str | None = None
    """`queueHistory`: the name of a queue."""
    numbers: tuple[int, ...] = ()
    """`partitions`: the numbers of the partitions of each topic, sorted; empty for all."""

    @classmethod
    def parse(cls, given: GivenOptions) -> Self:
        """Parse the selection.

        Raises:
            ConfigError: No selection is given, or several, or its value is invalid.
        """
        found = given.given(_SELECTIONS)
        if len(found) != 1:
            choices = ", ".join(_SELECTIONS)
            are_given = " and ".join(found) + " are" if found else "none is"
            raise ConfigError(f"give exactly one of {choices}; {are_given} given")
        text = given.text(found[0]) or ""
        if found == ["assign"]:
            if "partitions" in given:
                raise ConfigError("assign names the partitions; leave the option partitions out")
            return cls(partitions=_assigned(given.json_object("assign") or {}))
        numbers = _partition_numbers(given.text("partitions"))
        if found == ["subscribe"]:
            return cls(topics=_topics(text), numbers=numbers)
        if found == ["subscribePattern"]:
            return cls(pattern=_pattern(text), numbers=numbers)
        if found == ["queueHistory"]:
            return cls(history_of=text, numbers=numbers)
        return cls(dead_letters_of=text, numbers=numbers)

    def __str__(self) -> str:
        """Return the selection for messages."""
        if self.topics:
            return ", ".join(self.topics)
        if self.partitions:
            return ", ".join(f"{at.topic}/{at.partition}" for at in self.partitions)
        if self.dead_letters_of is not None:
            return f"dead letters of queue {self.dead_letters_of}"
        if self.history_of is not None:
            return f"history of queue {self.history_of}"
        return f"topics like {self.pattern}"


@final
@dataclass(frozen=True, slots=True)
class OffsetLimit:
    """Start or end of the range to read."""

    option: str
    """Name of the option, for errors."""
    at: Literal["earliest", "latest", "time", "offset", "offsets", "times"]
    time: Moment = _EPOCH
    """With `time`: the time for all partitions."""
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    """With `offsets`: an offset, `EARLIEST` or `LATEST` of every selected partition."""
    times: Mapping[TopicPartition, Moment] = field(default_factory=dict[TopicPartition, Moment])
    """With `times`: the time for every selected partition."""
    offset: int = 0
    """With `offset`: the offset for all partitions; one that ends before it is read to its end."""

    @property
    def is_moving(self) -> bool:
        """Whether the option means later offsets as time passes: the end, or an age."""
        is_age = self.time.is_age or any(each.is_age for each in self.times.values())
        return self.at == "latest" or LATEST in self.by_partition.values() or is_age


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of the source."""

    connection: ConnectionOptions
    selection: Selection
    starting: OffsetLimit
    ending: OffsetLimit
    """End of a batch; a stream has no end."""
    starting_strategy: Strategy
    """Action if no record of a partition is as young as the starting time: fail, or begin at the
    end. An empty partition always begins at its end."""
    min_partitions: int | None
    """Approximate least number of tasks."""
    max_records_per_partition: int | None
    """Maximum of records for one task; `None`: no limit."""
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    """Longest wait of a batch below `min_offsets_per_trigger`, in milliseconds."""
    max_bytes_per_trigger: int | None
    fail_on_data_loss: bool
    include_headers: bool
    group_id: str | None
    """Group to which the stream commits its position, so that its lag is visible."""
    group_id_prefix: str | None
    fetch_timeout_ms: int
    """Milliseconds without progress, below the end offset, after which a task fails."""
    retry_count: int
    """Retries of the request for end offsets."""
    retry_interval_ms: int
    isolation: Isolation
    """Accepted for jobs written for Kafka: a log never holds uncommitted records of a transaction,
    so both values read the same."""
    large_messages: LargeMessages
    values: ValueOptions
    large_message_bytes_max: int
    """Maximum size of a joined message in bytes; the task fails at a larger one and names it."""
    columns: tuple[str, ...]
    """`columns`: the names of the columns to read, in this order; empty for all."""
    ignored: tuple[str, ...]
    """A line for each given option without an effect."""

    @classmethod
    def parse(cls, raw: Mapping[str, str], *, is_stream: bool | None) -> Self:
        """Parse the options of a source; `is_stream` is `None` while that is unknown.

        Raises:
            ConfigError: An option is unknown, missing or invalid, or contradicts another.
        """
        given = GivenOptions(raw, READ_NAMES)
        connection = ConnectionOptions.parse(given)
        selection = Selection.parse(given)
        if selection.history_of is not None:
            _refuse(given, _ONLY_RECORDS, "it applies to records, and queueHistory reads none")
        default_start: Literal["earliest", "latest"] = "latest" if is_stream else "earliest"
        starting = _place(given, _STARTING, default_start)
        ending = _place(given, _ENDING, "latest")
        if is_stream:
            _refuse(given, _ENDING, "a stream has no end; use trigger(availableNow=True)")
        elif is_stream is False:
            given.ignore(_ONLY_STREAM, "it is for streams, and this is a batch")
            _check_batch(starting, ending)
        offsets_max = given.number("maxOffsetsPerTrigger")
        offsets_min = given.number("minOffsetsPerTrigger")
        if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
            raise ConfigError(
                f"minOffsetsPerTrigger {offsets_min} is above maxOffsetsPerTrigger {offsets_max}"
            )
        if "groupId" in given and "groupIdPrefix" in given:
            raise ConfigError("give groupId or groupIdPrefix, not both")
        per_task = None if is_stream else RECORDS_PER_TASK
        strategy: Strategy = "error" if is_stream else "latest"
        return cls(
            connection=connection,
            selection=selection,
            starting=starting,
            ending=ending,
            starting_strategy=given.choice(_STRATEGY, ("error", "latest"), default=strategy),
            min_partitions=given.number("minPartitions"),
            max_records_per_partition=given.number("maxRecordsPerPartition") or per_task,
            max_offsets_per_trigger=offsets_max,
            min_offsets_per_trigger=offsets_min,
            max_trigger_delay_ms=given.duration_ms(
                "maxTriggerDelay", default=_MAX_TRIGGER_DELAY_MS
            ),
            max_bytes_per_trigger=given.number("maxBytesPerTrigger"),
            fail_on_data_loss=given.flag("failOnDataLoss", default=True),
            include_headers=given.flag("includeHeaders", default=False),
            group_id=given.text("groupId"),
            group_id_prefix=given.text("groupIdPrefix"),
            columns=_names("columns", given.text("columns")),
            ignored=tuple(given.ignored),
            **_details(given),
        )


def _details(given: GivenOptions) -> dict[str, Any]:
    """Return the rarely set fields."""
    retry_count = given.number("fetchOffset.numRetries", at_least=0)
    isolations: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
    large: tuple[LargeMessages, ...] = ("join", "chunks")
    return {
        "fetch_timeout_ms": given.duration_ms("fetch.timeout.ms", default=_FETCH_TIMEOUT_MS),
        "retry_count": _RETRY_COUNT if retry_count is None else retry_count,
        "retry_interval_ms": given.duration_ms(
            "fetchOffset.retryIntervalMs", default=_RETRY_INTERVAL_MS
        ),
        "values": ValueOptions.parse(given),
        "isolation": given.choice("isolation", isolations, default="read_committed"),
        "large_messages": given.choice("largeMessages", large, default="join"),
        "large_message_bytes_max": given.number("largeMessageMaxBytes") or _LARGE_BYTES_MAX,
    }


def _names(option: str, text: str | None) -> tuple[str, ...]:
    """Return the names between commas; none if the option is not given."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and (not names or len(set(names)) < len(names)):
        raise ConfigError(f"{option} must be different names with commas between, not {text!r}")
    return names


def _partition_numbers(text: str | None) -> tuple[int, ...]:
    """Return the numbers in a text such as `0,4-7`; none if the option is not given."""
    found: set[int] = set()
    for part in _names("partitions", text):
        ends = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part, re.ASCII)
        if ends is None or int(ends[2] or ends[1]) < int(ends[1]):
            raise ConfigError(f"partitions must be numbers and ranges such as 0,4-7, not {text!r}")
        found |= set(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return tuple(sorted(found))


def _topics(text: str) -> tuple[str, ...]:
    topics = sorted({name.strip() for name in text.split(",") if name.strip()})
    if not topics:
        raise ConfigError(f"subscribe must be names with commas between them, not {text!r}")
    return tuple(topics)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(
            f"subscribePattern {text!r} is not a Python regular expression: {error}"
        ) from error
    return text


def _assigned(by_topic: dict[str, Any]) -> tuple[TopicPartition, ...]:
    found: list[TopicPartition] = []
    for topic, partitions in by_topic.items():
        if not isinstance(partitions, list) or not partitions:
            raise ConfigError(f'assign must be JSON such as {{"orders":[0,1]}}; see {topic!r}')
        for number in cast("list[object]", partitions):
            if type(number) is not int or number < 0:  # Excludes bool, a subclass of int.
                raise ConfigError(f"assign: {number!r} of {topic!r} is not a partition's number")
            found.append(TopicPartition(topic, number))
    if not found:
        raise ConfigError("assign names no partition")
    if len(set(found)) < len(found):
        raise ConfigError("assign names a partition twice")
    return tuple(sorted(found))


def _place(
    given: GivenOptions, names: _LimitNames, default: Literal["earliest", "latest"]
) -> OffsetLimit:
    """Parse the first given option of `names`: a time, times, or offsets."""
    time = given.text(names.time)
    if time is not None:
        return OffsetLimit(names.time, "time", parse_moment(names.time, time))
    times = given.json_object(names.times)
    if times is not None:
        return OffsetLimit(names.times, "times", times=_by_partition(names.times, times, _moment))
    text = given.text(names.offsets)
    if text is None:
        return OffsetLimit(names.offsets, default)
    if text.lower() in ("earliest", "latest"):
        return OffsetLimit(names.offsets, "earliest" if text.lower() == "earliest" else "latest")
    if re.fullmatch(r"\d{1,19}", text, re.ASCII) and int(text) <= OFFSET_MAX:
        return OffsetLimit(names.offsets, "offset", offset=int(text))
    if not text.startswith("{"):
        raise ConfigError(
            f"{names.offsets} must be earliest, latest, an offset for all partitions, or JSON such"
            f' as {{"orders":{{"0":23}}}}, not {text!r}'
        )
    offsets = _by_partition(names.offsets, given.json_object(names.offsets) or {}, _offset)
    return OffsetLimit(names.offsets, "offsets", by_partition=offsets)


def _by_partition(
    name: str, by_topic: dict[str, Any], parse: Callable[[str, object], Parsed]
) -> dict[TopicPartition, Parsed]:
    """Return what `parse` makes of the value of each partition, in the format of offsets."""
    found: dict[TopicPartition, Parsed] = {}
    for topic, values in by_topic.items():
        if not isinstance(values, dict):
            raise ConfigError(f'{name} must be JSON such as {{"orders":{{"0":23}}}}; see {topic!r}')
        for partition, value in cast("dict[str, object]", values).items():
            if not re.fullmatch(r"0|[1-9]\d{0,9}", partition, re.ASCII):
                raise ConfigError(f"{name}: {partition!r} of {topic!r} is not a partition's number")
            at = TopicPartition(topic, int(partition))
            found[at] = parse(f"{name}: {topic}/{partition}", value)
    if not found:
        raise ConfigError(f"{name} names no partition")
    return found


def _offset(where: str, found: object) -> int:
    if type(found) is not int or not EARLIEST <= found <= OFFSET_MAX:
        raise ConfigError(f"{where} must be a whole number of -2 or more, not {json_text(found)}")
    return found


def _moment(where: str, found: object) -> Moment:
    return parse_moment(where, found if isinstance(found, str) else json_text(found))


def json_text(value: object) -> str:
    """Return a JSON value nearly as it was written."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _refuse(given: GivenOptions, names: tuple[str, ...], why: str) -> None:
    found = given.given(names)
    if found:
        raise ConfigError(f"{found[0]} cannot be used here: {why}")


def _check_batch(starting: OffsetLimit, ending: OffsetLimit) -> None:
    if starting.at == "latest":
        raise ConfigError("startingOffsets latest would leave a batch nothing to read")
    if ending.at == "earliest":
        raise ConfigError("endingOffsets earliest would leave a batch nothing to read")
    for place, refused, word in ((starting, LATEST, "latest"), (ending, EARLIEST, "earliest")):
        for at, offset in place.by_partition.items():
            if place.at == "offsets" and offset == refused:
                raise ConfigError(
                    f"{place.option}: {offset} ({word}) for {at.topic}/{at.partition} would leave a"
                    " batch nothing to read"
                )
