"""Counts Python calls of a thread by `sys.setprofile`."""

import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import final

_ROOT = f"{Path(__file__).resolve().parent.parent}/"
_LIBRARIES = "/site-packages/"


@final
class CallCounter:
    """Counter of the calls of Python functions, with each step of a coroutine, by function."""

    def __init__(self) -> None:
        """Create a stopped counter."""
        self._calls: Counter[CodeType] = Counter()

    def start(self) -> None:
        """Begin to count the calls of this thread, from zero."""
        calls = self._calls
        calls.clear()

        def count(frame: FrameType, event: str, _: object) -> None:
            if event == "call":
                calls[frame.f_code] += 1

        sys.setprofile(count)

    def stop(self) -> Counter[str]:
        """End it; return the numbers of calls by function, such as `client/client.py:connect`."""
        sys.setprofile(None)
        found: Counter[str] = Counter()
        for code, number in self._calls.items():
            found[_name_of(code)] += number
        return found


def _name_of(code: CodeType) -> str:
    """Return the file and the qualified name of a function."""
    file = code.co_filename.rpartition(_LIBRARIES)[2].removeprefix(_ROOT)
    return f"{file}:{code.co_qualname}"
