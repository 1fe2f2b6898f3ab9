"""The public names of `tidelog`, which the package imports on first use."""

import os
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tidelog import values
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.security_admin import SecurityAdmin
from tidelog.client.client import Client, connect
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.fetch.record_iterator import BatchIterator, RecordIterator
from tidelog.client.processing.processor import Processor
from tidelog.client.producer.producer import Producer
from tidelog.client.queue.queue import Queue
from tidelog.client.queue.receive.message import Message
from tidelog.client.queue.receive.subscription import QueueSubscription
from tidelog.client.queue.receive.worker import QueueWorker
from tidelog.client.transactions.transaction import Transaction, TransactionTask
from tidelog.values import *  # noqa: F403  (every name there is public)

__all__: list[str] = [
    "Admin",
    "BatchIterator",
    "Client",
    "Consumer",
    "Message",
    "Processor",
    "Producer",
    "Queue",
    "QueueSubscription",
    "QueueWorker",
    "RecordIterator",
    "RunningBroker",
    "SecurityAdmin",
    "Transaction",
    "TransactionTask",
    "connect",
    "open_broker",
]
__all__ += values.__all__


class RunningBroker(Protocol):
    """A broker that `open_broker` runs."""

    @property
    def address(self) -> str:
        """`host:port` that clients connect to."""
        ...

    @property
    def http_address(self) -> str:
        """`host:port` of the HTTP server; empty unless `http_listen` is set."""
        ...


def open_broker(
    data_dir: str | os.PathLike[str], *, listen: str = "127.0.0.1:0", **settings: object
) -> AbstractAsyncContextManager[RunningBroker]:
    """Run a broker inside this program while the block runs; then stop it cleanly.

    `async with tidelog.open_broker("data") as broker: ... tidelog.connect(broker.address)`

    Args:
        data_dir: The directory of its data, created if missing.
        listen: `host:port` to listen on; by default, a free port of this machine.
        settings: Fields of the broker's configuration, such as `log_flush_interval_ms=1000`.

    Raises:
        DataDirectoryError: The data directory is in use, belongs to another node, or is damaged.
        ConfigError: A setting is not valid, or the broker cannot listen on the address.
    """
    # Programs that only use the client do not import the broker.
    from tidelog import embedded  # noqa: PLC0415

    return embedded.open_broker(data_dir, listen=listen, **settings)
