"""tidelog for programs without trio: the same names, and calls that wait.

The client runs in a thread of its own; calls wait for it. Errors are those of the client,
unchanged. Ctrl-C interrupts any call. Objects may be shared between threads, except that one
consumer is iterated by one thread at a time. A process that forks must connect after the fork.

    with tidelog.blocking.connect("127.0.0.1:8433") as client:
        with client.producer() as producer:
            producer.send_many("orders", [b"paid", b"sent"])
        with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            for record in consumer: ...
"""

from tidelog.blocking.calls.admin import Admin
from tidelog.blocking.client import Client, Consumer, Producer, connect
from tidelog.blocking.message import Message
from tidelog.blocking.queue import Queue
from tidelog.blocking.transaction import Transaction

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "Message",
    "Producer",
    "Queue",
    "Transaction",
    "connect",
]
