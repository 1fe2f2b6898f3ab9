"""The Python API of tidelog, a partitioned, replicated log broker with queues.

A client is the entry point: `async with tidelog.connect("127.0.0.1:8433") as client`.
`tidelog.blocking` is the same API for programs without trio. `tidelog.tracing` makes spans of
OpenTelemetry. `open_broker` runs a broker inside the program. Only the names of this package are
public; modules below it may move.

Names are imported on first use, so that `tidelog --help` does not wait for the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
"""The version of tidelog, in the form of PEP 440."""

if TYPE_CHECKING:
    from tidelog import blocking as blocking  # as: it is public
    from tidelog import tracing as tracing
    from tidelog.surface import *  # noqa: F403  (every name there is public)
else:

    def __getattr__(name: str) -> object:
        """Import and return a public name."""
        if name in {"blocking", "tracing"}:
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
        return sorted([*import_module("tidelog.surface").__all__, "blocking", "tracing"])
