"""The next command after an error of a cluster, with the names of the command that failed.

Pure: no clock, no I/O. A table by error: brokers and clients do not know which command runs.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.wire.errors import (
    AuthenticationFailedError,
    AuthenticationRequiredError,
    BatchError,
    BrokerNotReadyError,
    CorruptRecordError,
    DeliveryTimeoutError,
    DiskFullError,
    GroupNotEmptyError,
    InvalidReceiptError,
    LeaderNotAvailableError,
    LogOfflineError,
    LogTruncatedError,
    NoPositionError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    OffsetOutOfRangeError,
    OverLimitError,
    OverloadedError,
    PartitionFullError,
    QueueExistsError,
    ReceiptExpiredError,
    RecordTooLargeError,
    RequestTimedOutError,
    ThrottledError,
    TidelogError,
    TopicExistsError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownQueueError,
    UnknownTopicError,
    UnsupportedVersionError,
)

_MiB: Final = 1 << 20
_MESSAGE_MIB_MAX: Final = 64
"""Maximum of `max_message_bytes`."""
_HEALTH: Final = "`tidelog cluster status --partitions` shows missing brokers and replicas"

_ADVICE: Final[Mapping[type[TidelogError], str]] = {
    AuthenticationFailedError: "an administrator's `tidelog user password NAME` sets a password",
    AuthenticationRequiredError: (
        "add --profile NAME, or set TIDELOG_USER and TIDELOG_PASSWORD_FILE, or TIDELOG_TOKEN, which"
        " an administrator creates with `tidelog token create USER`"
    ),
    BrokerNotReadyError: "`tidelog cluster status` shows the brokers",
    CorruptRecordError: (
        "`tidelog consume {topic} --partition {partition} --offset {next_offset}` reads the records"
        " after it"
    ),
    DeliveryTimeoutError: _HEALTH,
    DiskFullError: "`tidelog topic usage` shows the largest topics",
    GroupNotEmptyError: "`tidelog group describe {group}` lists them",
    InvalidReceiptError: "`tidelog queue receive {queue}` prints receipt handles",
    LeaderNotAvailableError: _HEALTH,
    LogOfflineError: _HEALTH,
    LogTruncatedError: (
        "`tidelog consume {topic} --partition {partition} --offset {truncated_to}` reads them"
    ),
    NoPositionError: "`tidelog consume {topic} --from-beginning` starts at the first record",
    NotEnoughReplicasAfterAppendError: _HEALTH,
    NotEnoughReplicasError: _HEALTH,
    OffsetOutOfRangeError: "`tidelog consume {topic} --from-beginning` starts at the first record",
    OverLimitError: "`tidelog queue in-flight {queue}` shows the messages in flight",
    OverloadedError: "`tidelog cluster status` shows the brokers",
    PartitionFullError: "`tidelog topic alter {topic} --reset max_partition_bytes` ends the limit",
    QueueExistsError: (
        "`tidelog queue describe {queue}` shows its settings, and `tidelog queue alter {queue}`"
        " changes them"
    ),
    ReceiptExpiredError: "`tidelog queue in-flight {queue}` shows its consumer",
    RecordTooLargeError: (
        "`tidelog topic alter {topic} --set max_message_bytes={mebibytes}MiB` raises the limit"
    ),
    RequestTimedOutError: _HEALTH,
    ThrottledError: "`tidelog queue alter {queue} --reset send_rate` ends the limit",
    TopicExistsError: "`tidelog topic describe {topic}` shows it",
    UnknownGroupError: "`tidelog group list` lists the groups",
    UnknownPartitionError: "`tidelog topic describe {topic}` lists the partitions",
    UnsupportedVersionError: "`tidelog cluster features` shows the versions of the brokers",
}
"""Advice by error. Names in braces come from the command and from the error."""


_UNKNOWN_NAME: Final = (UnknownTopicError, UnknownQueueError)


def advice_for(error: BaseException, names: Mapping[str, object]) -> str | None:
    """Return the advice after an error; `None` if there is none, or the text has a command.

    Args:
        error: The error, or one that another error caused.
        names: The arguments of the command, such as `topic`.
    """
    if "`tidelog " in str(error):
        return None
    for cause in _causes(error):
        template = _ADVICE.get(type(cause))
        if template is not None:
            facts = {**names, **_facts_of(cause)}
            try:
                return template.format_map(facts)
            except KeyError:
                return None  # The command has no such argument.
    return None


def advice_for_user(error: BaseException) -> str | None:
    """Return the advice after an error at a client with credentials; `None` if there is none.

    A name that its user may not see is unknown to it.
    """
    if any(isinstance(cause, _UNKNOWN_NAME) for cause in _causes(error)):
        return "or the user of this command may not see it: `tidelog access list` shows its rules"
    return None


def _causes(error: BaseException) -> Iterator[TidelogError]:
    """Yield an error of tidelog, what caused it, and the parts of an error for many calls."""
    if isinstance(error, TidelogError):
        yield error
    if isinstance(error, BatchError):
        yield from error.errors.values()
    if error.__cause__ is not None:
        yield from _causes(error.__cause__)


def _facts_of(error: TidelogError) -> dict[str, object]:
    """Return the names and numbers of an error."""
    facts: dict[str, object] = {}
    if isinstance(error, RecordTooLargeError) and error.size_bytes is not None:
        mebibytes = -(-error.size_bytes // _MiB)
        if mebibytes <= _MESSAGE_MIB_MAX:
            facts["mebibytes"] = mebibytes
    if isinstance(error, CorruptRecordError) and error.next_offset is not None:
        facts["next_offset"] = error.next_offset
    if isinstance(error, LogTruncatedError) and error.truncated_to is not None:
        facts["truncated_to"] = error.truncated_to
    at = getattr(error, "at", None)
    if at is not None:
        facts["topic"], facts["partition"] = at
    return facts
