"""Reassembler of large messages, within a limit of memory.

Shell without tasks. Messages above the limit are returned to the queue and do not count as
received; so a call never holds more than one message above the limit. A message that could not be
read while the leases of those before it have time is returned, too.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

import trio
from msgspec.structs import replace

from tidelog.client.queue.receive.message import RETURN, Disposition, Message
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.wire.batch.large_messages import chunks_of
from tidelog.wire.errors import (
    CorruptRecordError,
    MessageBodyLostError,
    TidelogError,
    WireFormatError,
)
from tidelog.wire.messages.queues import SettleAction

_GIVING_BACK_S: Final = 1.0
"""Seconds for which a cancelled call stays to return its messages."""


@final
class Reassembler:
    """Joins large messages of one queue."""

    def __init__(self, settler: QueueSettler) -> None:
        """Return messages above the limit through `settler`."""
        self._settler = settler

    async def joined(self, messages: Sequence[Message], max_bytes: int) -> list[Message]:
        """Return messages; large messages of up to `max_bytes` bytes are joined.

        All joined messages have no more than that together, or are a single one. From the first
        message on that does not fit, or takes too long, messages are returned to the queue, so that
        their order stays. If cancelled, all are returned. Messages that are longer, or whose chunks
        the topic has deleted, are handed out without their value.

        Raises:
            TidelogError: The first message could not be read; all were returned to the queue.
        """
        if not may_be_large(messages):
            return list(messages)
        found: list[Message] = []
        try:
            failure = await _join_all(messages, max_bytes, found)
            rest = messages[len(found) :]
            if isinstance(failure, CorruptRecordError):
                # The release counts, so that unreadable messages become dead letters in the end.
                verdict = Disposition(SettleAction.RELEASE, reason=str(failure))
                await self._settle(rest[:1], verdict)
                rest = rest[1:]
            await self._settle(rest, RETURN)
        except BaseException:
            with trio.move_on_after(_GIVING_BACK_S, shield=True):
                await self._settle(messages, RETURN)
            raise
        if failure is not None and not found:
            raise failure
        return found

    async def _settle(self, messages: Sequence[Message], verdict: Disposition) -> None:
        if messages:
            with suppress(TidelogError, trio.ClosedResourceError):  # Then their leases must expire.
                await self._settler.settle([each.place for each in messages], verdict)


def may_be_large(messages: Sequence[Message]) -> bool:
    """Return whether one of the messages may have its value in chunks."""
    if len(messages) <= 1:  # Without a generator.
        return bool(messages) and not messages[0].content and bool(messages[0].headers)
    return any(not message.content and message.headers for message in messages)


async def _join_all(
    messages: Sequence[Message], max_bytes: int, found: list[Message]
) -> TidelogError | None:
    """Add joined messages to `found` until one does not fit; return the error of the next one.

    Messages in `found` wait for chunks of others for half of their time at most.
    """
    now = trio.current_time()
    left_s = min((message.lease.expires_at for message in messages), default=now) - now
    ends_at = now + left_s / 2 if left_s > 0 else math.inf
    room = max_bytes
    for message in messages:
        length = _length_to_join(message, max_bytes)
        if length > room or (found and trio.current_time() >= ends_at):
            break
        with trio.CancelScope(deadline=ends_at if found and length else math.inf):
            try:
                whole = await joined(message, max_bytes) if length else message
            except TidelogError as error:
                return error
            found.append(whole)
            room -= length
            continue
        break  # Its time was over.
    return None


async def joined(message: Message, max_bytes: int) -> Message:
    """Return a message with its value, unless that is longer than `max_bytes`.

    If the topic has deleted its chunks, reading `value` raises the error.

    Raises:
        CorruptRecordError: A chunk is corrupt.
        TidelogError: No broker answered.
    """
    if not _length_to_join(message, max_bytes):
        return message
    try:
        return replace(message, content=await message.read(max_bytes))
    except MessageBodyLostError as error:
        message.lease.failures[message.offset] = error
        return message


def _length_to_join(message: Message, max_bytes: int) -> int:
    """Return the length of a message that is to be joined, 0 for others."""
    if message.content or not message.headers:
        return 0
    try:
        chunks = chunks_of(message.headers)
    except WireFormatError:
        return 0
    return chunks.length if chunks is not None and chunks.length <= max_bytes else 0
