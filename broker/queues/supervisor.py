"""Supervisors of queue partitions: a defect drops one partition, which is loaded again.

Shell. Tasks of a partition run beside those of all others, and beside all other work of a broker.
An unexpected exception of one, for instance by a header that any producer may send, must not end
them. It must not end the next broker that serves the partition either.
"""

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TypeVarTuple

import trio

from tidelog.wire.errors import BrokerError, UnexpectedServerError

Args = TypeVarTuple("Args")

_log = logging.getLogger("tidelog.broker")


class Supervised(Protocol):
    """A partition of a queue."""

    number: int

    @property
    def name(self) -> str:
        """The name of the queue."""
        ...

    def drop(self, error: BrokerError) -> None:
        """Stop serving the partition; waiting requests get `error`."""
        ...


@contextmanager
def surviving(work: str) -> Generator[None]:
    """Catch every exception of the block, and log it; `work` describes the block.

    For work of no single partition that starts again by itself.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001  (the supervisor)
        _log.error("%s failed unexpectedly", work, exc_info=error)


def drop_for(hosted: Supervised, error: Exception) -> None:
    """Log an unexpected exception of a partition's work, and drop the partition.

    One of the three supervisors ends here; the others are those of requests and of connections.
    """
    name, number = hosted.name, hosted.number
    _log.error("partition %d of queue %r failed unexpectedly", number, name, exc_info=error)
    hosted.drop(
        UnexpectedServerError(
            f"partition {number} of queue {name!r} failed unexpectedly"
            f" ({type(error).__name__}) and is loaded again; the log of the broker has the"
            " details"
        )
    )


@contextmanager
def supervising(hosted: Supervised) -> Generator[None]:
    """Catch every exception of the block, log it, and drop the partition."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (the supervisor)
        drop_for(hosted, error)


def start_supervised(
    nursery: trio.Nursery,
    hosted: Supervised,
    work: Callable[[*Args], Awaitable[None]],
    *args: *Args,
) -> None:
    """Start a task of a partition; an unexpected exception of it drops the partition."""

    async def run() -> None:
        with supervising(hosted):
            await work(*args)

    nursery.start_soon(run, name=work)
