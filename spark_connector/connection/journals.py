"""Names of queue journals, which the connector reads like topics.

Pure: no clock, no I/O. The names are those of the brokers; no topic has an @ in its name.
"""

from typing import Final

from tidelog.wire.errors import TidelogError, UnknownQueueError, UnknownTopicError

_PREFIX: Final = "queue@"


def journal_of(queue: str) -> str:
    """Return the journal's name of a queue."""
    return f"{_PREFIX}{queue}"


def queue_of(topic: str) -> str:
    """Return the queue of a journal's name."""
    return topic.removeprefix(_PREFIX)


def is_journal(topic: str) -> bool:
    """Return whether a name is that of a journal."""
    return topic.startswith(_PREFIX)


def not_there(topic: str) -> TidelogError:
    """Return the error for a topic or a queue that does not exist."""
    if is_journal(topic):
        return UnknownQueueError(f"there is no queue {queue_of(topic)!r}")
    return UnknownTopicError(f"there is no topic {topic!r}")
