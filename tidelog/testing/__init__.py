"""Brokers for tests: a broker in a thread of this process, on a free port and throwaway data.

    with tidelog.testing.broker() as broker, tidelog.blocking.connect(broker.address) as client:
        ...

The pytest plugin `tidelog.testing.plugin` makes fixtures of it. Nothing heavy is imported before
the first broker.
"""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.testing.ephemeral_broker import EphemeralBroker

__all__ = ["EphemeralBroker", "QueueFactory", "TopicFactory", "broker"]


class TopicFactory(Protocol):
    """Type of the fixture `tidelog_topic_factory`: creates topics; returns their names."""

    def __call__(self, partitions: int = 1, **options: object) -> str:
        """Create a topic; `options` are those of `tidelog.Admin.create_topic`."""
        ...


class QueueFactory(Protocol):
    """Type of the fixture `tidelog_queue_factory`: creates queues; returns their names."""

    def __call__(self, **options: object) -> str:
        """Create a queue; `options` are those of `tidelog.Admin.create_queue`."""
        ...


def broker(**settings: object) -> "EphemeralBroker":
    """Start a broker; close it, or use it with `with`.

    Args:
        settings: Fields of the broker's configuration, such as `max_connections=10`.

    Raises:
        ConfigError: A setting is not valid.
    """
    return load_broker_class()(settings)


def load_broker_class() -> "type[EphemeralBroker]":
    """Import the broker and the client, and return `EphemeralBroker`."""
    with _collecting_no_garbage():
        from tidelog.testing.ephemeral_broker import EphemeralBroker  # noqa: PLC0415
    return EphemeralBroker


@contextmanager
def _collecting_no_garbage() -> Generator[None]:
    """Keep garbage collection out of the first import, of which it would take a third.

    The import creates many objects and no garbage. Afterwards the objects belong to the oldest
    generation: the next collection would else look at all of them.
    """
    if "tidelog.testing.ephemeral_broker" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # The program may have frozen objects of its own.
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def __getattr__(name: str) -> object:
    """Import and return the class, for annotations."""
    if name == "EphemeralBroker":
        return load_broker_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
