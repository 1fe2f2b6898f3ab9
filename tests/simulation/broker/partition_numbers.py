"""Unique numbers for the partitions of all topics of a run.

The first topic has 0, 1, 2 and so on, the next one 1000, 1001, ...; a topic that reuses a name has
numbers of its own.
"""

import re
from typing import final

_STEP = 1000
_PARTITION_DIRECTORY = re.compile(r"topics/.+\.([0-9a-f]{32})/([0-9]+)")


@final
class PartitionNumbers:
    """The numbers assigned so far."""

    def __init__(self) -> None:
        """Start without numbers."""
        self._firsts: dict[str, int] = {}

    def first(self, topic_id: bytes) -> int:
        """Return the number of a topic's partition 0."""
        return self._first(topic_id.hex())

    def of_directory(self, path: str) -> int | None:
        """Return the number of the partition whose log is at `path`, `None` if no log is there."""
        match = _PARTITION_DIRECTORY.fullmatch(path)
        return None if match is None else self._first(match[1]) + int(match[2])

    def _first(self, topic_id: str) -> int:
        return self._firsts.setdefault(topic_id, len(self._firsts) * _STEP)
