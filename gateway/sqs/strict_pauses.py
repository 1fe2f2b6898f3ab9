"""Pauses of `--strict-sqs`: what the cloud refuses for 60 s after a purge or a deletion.

Pure: no clock, no I/O. tidelog needs no pause, so no broker knows of them: each front remembers the
requests that it served itself.
"""

from typing import Final, final

from tidelog.gateway.sqs.protocol.errors import (
    PURGE_QUEUE_IN_PROGRESS,
    QUEUE_DELETED_RECENTLY,
    SqsError,
)

PAUSE_S: Final = 60
"""Source: PurgeQueue and DeleteQueue in the Amazon SQS API Reference."""


@final
class StrictPauses:
    """Queues that were purged or deleted in the last minute, by their tidelog names."""

    def __init__(self) -> None:
        """Begin without pauses."""
        self._purged: dict[str, float] = {}
        """Time of the purge in seconds, in the order of the purges; so below."""
        self._deleted: dict[str, float] = {}

    def purged(self, queue: str, now_s: float) -> None:
        """Note that a queue was purged."""
        _note(self._purged, queue, now_s)

    def deleted(self, queue: str, now_s: float) -> None:
        """Note that a queue was deleted."""
        _note(self._deleted, queue, now_s)
        self._purged.pop(queue, None)

    def check_purge(self, queue: str, name: str, now_s: float) -> None:
        """Check that a queue may be purged.

        Raises:
            SqsError: It was purged in the last minute.
        """
        if _is_recent(self._purged, queue, now_s):
            raise SqsError(
                PURGE_QUEUE_IN_PROGRESS,
                f"Only one PurgeQueue operation on {name} is allowed every {PAUSE_S} seconds.",
            )

    def check_creation(self, queue: str, now_s: float) -> None:
        """Check that a queue may be created.

        Raises:
            SqsError: A queue of this name was deleted in the last minute.
        """
        if _is_recent(self._deleted, queue, now_s):
            raise SqsError(
                QUEUE_DELETED_RECENTLY,
                f"You must wait {PAUSE_S} seconds after deleting a queue before you can create"
                " another with the same name.",
            )


def _note(times: dict[str, float], queue: str, now_s: float) -> None:
    for each in [each for each, at in times.items() if at <= now_s - PAUSE_S]:
        del times[each]
    times.pop(queue, None)
    times[queue] = now_s


def _is_recent(times: dict[str, float], queue: str, now_s: float) -> bool:
    at = times.get(queue)
    return at is not None and at > now_s - PAUSE_S
