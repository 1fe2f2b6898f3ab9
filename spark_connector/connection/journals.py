"""Journals of queues, which are read as topics are, by APIs of their own.

Pure: no clock, no I/O. A journal is named as brokers name it; no topic has an @ in its name.
"""

from typing import Final

from tidelog.wire.errors import TidelogError, UnknownQueueError, UnknownTopicError
from tidelog.wire.messages.fetch import (
    FetchReply,
    FetchRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

_PREFIX: Final = "queue@"


def journal_of(queue: str) -> str:
    """Return the name of the journal of a queue."""
    return f"{_PREFIX}{queue}"


def queue_of(topic: str) -> str:
    """Return the queue whose journal has this name."""
    return topic.removeprefix(_PREFIX)


def fetch_api(topic: str) -> Api[FetchRequest, FetchReply]:
    """Return how records of a topic are fetched, or what a journal says."""
    return api.FETCH_HISTORY if topic.startswith(_PREFIX) else api.FETCH


def offsets_api(topic: str) -> Api[ListOffsetsRequest, ListOffsetsReply]:
    """Return how offsets of a topic are found, or of a journal."""
    return api.LIST_HISTORY_OFFSETS if topic.startswith(_PREFIX) else api.LIST_OFFSETS


def not_there(topic: str) -> TidelogError:
    """Return the error that says that there is no such topic, or no such queue."""
    if topic.startswith(_PREFIX):
        return UnknownQueueError(f"there is no queue {queue_of(topic)!r}")
    return UnknownTopicError(f"there is no topic {topic!r}")
