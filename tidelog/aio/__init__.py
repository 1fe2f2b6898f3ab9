"""The client for asyncio and uvloop: the API of `tidelog` for programs without trio.

The client runs in the thread of the event loop, by the guest mode of trio. Its calls are awaited as
those of any library of asyncio: they obey `asyncio.timeout` and cancellation, and carry context
variables. A client belongs to the event loop that connected it.

    import tidelog.aio

    async with tidelog.connect("127.0.0.1:8433") as client:
        async with client.producer() as producer:
            producer.send_nowait("orders", b"paid")           # batched; does not wait
            receipt = await producer.send("orders", b"sent")  # waits for the acknowledgement
        async with client.consumer("orders", group_id="billing") as consumer:
            async for record in consumer: ...

Clients, producers and consumers are closed by `async with`, or by `close` after
`client = await tidelog.connect(...)`. All other names are those of `tidelog`.
"""

from tidelog import values
from tidelog.aio.broker import RunningBroker, open_broker
from tidelog.aio.calls.admin import Admin
from tidelog.aio.calls.security_admin import SecurityAdmin
from tidelog.aio.client import Client, connect
from tidelog.aio.consumer import BatchIterator, Consumer, RecordIterator
from tidelog.aio.message import Message
from tidelog.aio.processor import Processor
from tidelog.aio.producer import Producer
from tidelog.aio.queue import Queue, QueueSubscription, QueueWorker
from tidelog.aio.transaction import Transaction, TransactionTask
from tidelog.values import *  # noqa: F403  (every name there is public)

__all__ = [
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
