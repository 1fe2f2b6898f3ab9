"""Brokers for tests: a broker in a thread of this process, on a free port and throwaway data.

    with tidelog.testing.broker() as broker, tidelog.blocking.connect(broker.address) as client:
        ...

The pytest plugin `tidelog.testing.plugin` makes fixtures of it. Nothing heavy is imported before
the first broker.
"""

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.testing.ephemeral_broker import EphemeralBroker

__all__ = ["EphemeralBroker", "broker"]


def broker(**settings: object) -> "EphemeralBroker":
    """Start a broker; close it, or use it with `with`.

    Args:
        settings: Fields of the broker's configuration, such as `max_connections=10`.

    Raises:
        ConfigError: A setting is not valid.
    """
    return load_broker_class()(settings)


def load_broker_class() -> "type[EphemeralBroker]":
    """Import the broker and the client, and return `EphemeralBroker`.

    The import creates many objects and no garbage. Garbage collection would take a fifth of it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        from tidelog.testing.ephemeral_broker import EphemeralBroker  # noqa: PLC0415
    finally:
        if was_enabled:
            gc.enable()
    return EphemeralBroker


def __getattr__(name: str) -> object:
    """Import and return the class, for annotations."""
    if name == "EphemeralBroker":
        return load_broker_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
