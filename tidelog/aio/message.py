"""Messages of queues for asyncio."""

from typing import final

from tidelog.aio.calls.message import MessageCalls
from tidelog.client.queue.receive.message import Message as InnerMessage


@final
class Message(MessageCalls):
    """See `tidelog.Message`."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the text of the inner message."""
        return repr(self._inner)

    def unwrapped(self) -> InnerMessage:
        """Return the message of the client."""
        return self._inner


Received = Message | str
"""A message, or its receipt handle."""


def unwrapped(message: Received) -> InnerMessage | str:
    """Return the message of the client; return a receipt handle unchanged."""
    return message.unwrapped() if isinstance(message, Message) else message
