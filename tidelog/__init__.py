"""The Python API of tidelog, a partitioned, replicated log broker with queues.

A client is the entry point: `async with tidelog.connect("127.0.0.1:8433") as client`.
`tidelog.aio` is the same API for asyncio, and `tidelog.blocking` for programs without either.
`tidelog.tracing` makes spans of OpenTelemetry. `open_broker` runs a broker inside the program. Only
the names of this package are public; modules below it may move.

Names are imported on first use, so that `tidelog --help` does not wait for the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
"""The version of tidelog, in the form of PEP 440."""

if TYPE_CHECKING:
    from tidelog import aio as aio  # as: it is public
    from tidelog import blocking as blocking
    from tidelog import tracing as tracing
    from tidelog.surface import *  # noqa: F403  (every name there is public)
    from tidelog.surface import __all__ as __all__
    from tidelog.values import *  # noqa: F403  (the same)
else:

    def __getattr__(name: str) -> object:
        """Import and return a public name."""
        if name in {"aio", "blocking", "tracing"}:
            return import_module(f"tidelog.{name}")
        # Tools such as `inspect` ask every module for names with underscores; they load nothing.
        if name == "__all__" or not name.startswith("__"):
            surface = import_module("tidelog.surface")
            if name == "__all__" or name in surface.__all__:
                value: object = getattr(surface, name)
                globals()[name] = value  # The next access does not call this function.
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Return the public names."""
        return sorted([*import_module("tidelog.surface").__all__, "aio", "blocking", "tracing"])
