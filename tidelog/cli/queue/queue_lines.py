"""Lines of a file that name queues to create.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from tidelog.client.admin.queue_batches import NewQueue


class QueueLine(NamedTuple):
    """A line that is not empty."""

    number: int
    """Of the line, from 1."""
    name: str
    """Name of the queue, or what the line has in its place."""
    queue: NewQueue | None
    """`None` for a line that is no queue."""
    error: str = ""
    """Why it is none."""


class _JsonQueue(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    topic: str | None = None
    partitions: int | None = None
    fifo: bool | None = None
    config: dict[str, str | int | float | bool] = {}
    topic_config: dict[str, str | int | float | bool] = {}
    labels: dict[str, str] = {}


_json_queue: Final = msgspec.json.Decoder(_JsonQueue)
_NAME_SHOWN_CHARS: Final = 60


def queues_of_lines(lines: Iterable[bytes], common: NewQueue) -> list[QueueLine]:
    """Return the queue of each line: a name, or a JSON object with a name and settings.

    Empty lines are left out. What a line lacks is as in `common`, of which the name does not count.
    """
    return [
        _queue_of(number, line.strip(), common)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _queue_of(number: int, line: bytes, common: NewQueue) -> QueueLine:
    try:
        text = line.decode()
        if not text.startswith("{"):
            return QueueLine(number, text, replace(common, name=text))
        given = _json_queue.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = line.decode("utf-8", "backslashreplace")[:_NAME_SHOWN_CHARS]
        return QueueLine(number, shown, None, f"no name and no queue in JSON: {error}")
    queue = NewQueue(
        given.name,
        common.topic if given.topic is None else given.topic,
        common.partitions if given.partitions is None else given.partitions,
        common.start,
        common.fifo if given.fifo is None else given.fifo,
        {**common.topic_config, **given.topic_config},
        {**common.labels, **given.labels},
        {**common.settings, **given.config},
    )
    return QueueLine(number, given.name, queue)
