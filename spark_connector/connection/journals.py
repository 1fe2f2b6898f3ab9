"""Names of the journals of queues, which are read as topics are.

Pure: no clock, no I/O. A journal is named as brokers name it; no topic has an @ in its name.
"""

from typing import Final

from tidelog.wire.errors import TidelogError, UnknownQueueError, UnknownTopicError

_PREFIX: Final = "queue@"


def journal_of(queue: str) -> str:
    """Return the name of the journal of a queue."""
    return f"{_PREFIX}{queue}"


def queue_of(topic: str) -> str:
    """Return the queue whose journal has this name."""
    return topic.removeprefix(_PREFIX)


def is_journal(topic: str) -> bool:
    """Return whether this is the name of a journal."""
    return topic.startswith(_PREFIX)


def not_there(topic: str) -> TidelogError:
    """Return the error that says that there is no such topic, or no such queue."""
    if is_journal(topic):
        return UnknownQueueError(f"there is no queue {queue_of(topic)!r}")
    return UnknownTopicError(f"there is no topic {topic!r}")
