"""Value above the size of a record, and its chunks."""

from typing import Final

from tidelog.client.queue.receive.message import Message

KiB: Final = 1024
MiB: Final = 1024 * KiB
LONG: Final = bytes(range(256)) * 4 * KiB * 3
"""3 MiB."""


async def parts(message: Message) -> list[int]:
    """Return the lengths of the chunks of a message."""
    return [len(chunk) async for chunk in message.chunks()]
