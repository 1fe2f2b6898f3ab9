from collections.abc import Callable
from typing import TypeVar

_Receiver = TypeVar("_Receiver", bound=Callable[..., None])

class Signal:
    def connect(self, receiver: _Receiver, /) -> _Receiver: ...

task_received: Signal
