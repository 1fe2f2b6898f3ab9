"""The blocking client: the API of `tidelog` for programs without trio.

The client runs in a thread of its own; each call waits for its result. Calls raise the errors of
the asynchronous client. Ctrl-C interrupts any call. Threads may share objects, except that only
one thread at a time iterates over a consumer. A process that forks must connect after the fork.

    with tidelog.blocking.connect("127.0.0.1:8433") as client:
        with client.producer() as producer:
            producer.send_many("orders", [b"paid", b"sent"])
        with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            for record in consumer: ...

All other names are those of `tidelog`.
"""

from tidelog import values
from tidelog.blocking.broker import open_broker
from tidelog.blocking.calls.admin import Admin
from tidelog.blocking.calls.security_admin import SecurityAdmin
from tidelog.blocking.client import Client, Consumer, Producer, connect
from tidelog.blocking.message import Message
from tidelog.blocking.processor import Processor
from tidelog.blocking.queue import Queue, QueueSubscription, QueueWorker
from tidelog.blocking.transaction import Transaction, TransactionTask
from tidelog.surface import RunningBroker
from tidelog.values import *  # noqa: F403  (every name there is public)

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "Message",
    "Processor",
    "Producer",
    "Queue",
    "QueueSubscription",
    "QueueWorker",
    "RunningBroker",
    "SecurityAdmin",
    "Transaction",
    "TransactionTask",
    "connect",
    "open_broker",
]
__all__ += values.__all__
