"""Messages of the blocking client."""

from typing import final

from tidelog.blocking.calls.message import MessageCalls
from tidelog.client.queue.receive.message import Message as AsyncMessage


@final
class Message(MessageCalls):
    """See `tidelog.Message`."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the text of the asynchronous message."""
        return repr(self._inner)

    def unwrapped(self) -> AsyncMessage:
        """Return the message of the asynchronous client."""
        return self._inner


Received = Message | str
"""A message, or its receipt handle."""


def unwrapped(message: Received) -> AsyncMessage | str:
    """Return the message of the asynchronous client; return a receipt handle unchanged."""
    return message.unwrapped() if isinstance(message, Message) else message
