"""Joining large messages that were received, as far as memory is allowed for.

Shell without tasks. What does not fit any more is given back, and does not count as received; so a
call holds one message more than fits at no time.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

import trio
from msgspec.structs import replace

from client.queue_message import RETURN, Message, Verdict
from client.queue_settler import QueueSettler
from wire.errors import CorruptRecordError, MessageBodyLostError, TidelogError, WireFormatError
from wire.large_messages import chunks_of
from wire.queues import SettleAction

_GIVING_BACK_S: Final = 1.0
"""How long somebody who was cancelled stays to give back what nobody saw."""


@final
class LargeJoiner:
    """Joins messages of one queue."""

    def __init__(self, settler: QueueSettler) -> None:
        """Give back through `settler` what does not fit."""
        self._settler = settler

    async def joined(self, messages: Sequence[Message], bytes_max: int) -> list[Message]:
        """Return messages, large ones joined if they have up to `bytes_max` bytes.

        All that are joined have no more than that together, or are a single one; from the first
        one on that does not fit, messages are given back, so that their order stays. Those that
        are longer, or whose chunks the topic has deleted, are returned as they are.

        Raises:
            TidelogError: The first one could not be read; all were given back.
        """
        found: list[Message] = []
        room = bytes_max
        try:
            for message in messages:
                length = _length_to_join(message, bytes_max)
                if length > room:
                    break
                found.append(await joined(message, bytes_max) if length else message)
                room -= length
        except CorruptRecordError as error:
            # It counts, so that messages which nobody can read are dead letters some day.
            bad = messages[len(found)]
            await self._settle([bad], Verdict(SettleAction.RELEASE, reason=str(error)))
            await self._settle(messages[len(found) + 1 :], RETURN)
            if not found:
                raise
        except TidelogError:
            await self._settle(messages[len(found) :], RETURN)
            if not found:
                raise
        except BaseException:
            with trio.move_on_after(_GIVING_BACK_S, shield=True):
                await self._settle(messages, RETURN)
            raise
        else:
            await self._settle(messages[len(found) :], RETURN)
        return found

    async def _settle(self, messages: Sequence[Message], verdict: Verdict) -> None:
        if messages:
            with suppress(TidelogError):  # Then their time has to pass.
                await self._settler.settle([each.place for each in messages], verdict)


async def joined(message: Message, bytes_max: int) -> Message:
    """Return a message with its value, unless that is longer than `bytes_max`.

    If the topic has deleted its chunks, `value` says so when it is asked for.

    Raises:
        CorruptRecordError: A chunk is damaged.
        TidelogError: Nobody could be asked.
    """
    if not _length_to_join(message, bytes_max):
        return message
    try:
        return replace(message, content=await message.read(bytes_max))
    except MessageBodyLostError as error:
        message.lease.failures[message.offset] = error
        return message


def _length_to_join(message: Message, bytes_max: int) -> int:
    """Return how long a message is that is to be joined, 0 for others."""
    if message.content or not message.headers:
        return 0
    try:
        chunks = chunks_of(message.headers)
    except WireFormatError:
        return 0
    return chunks.length if chunks is not None and chunks.length <= bytes_max else 0
