"""Messages for programs without trio."""

from typing import final

from tidelog.blocking.calls.message import MessageCalls
from tidelog.client.queue.receive.message import Message as AsyncMessage


@final
class Message(MessageCalls):
    """See `tidelog.Message`."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return it as people see it."""
        return repr(self._inner)

    def unwrapped(self) -> AsyncMessage:
        """Return the message as it is for programs with trio."""
        return self._inner


Received = Message | str
"""A message, or the receipt handle of one."""


def unwrapped(message: Received) -> AsyncMessage | str:
    """Return the message as the client has it; a receipt handle is passed on."""
    return message.unwrapped() if isinstance(message, Message) else message
