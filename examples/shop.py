"""A shop that never charges twice: an outbox, a relay, and a worker with an inbox, on SQLite.

Needs a broker (`tidelog serve`). Each line is a program of its own; kill any of them at any time:

    python examples/shop.py create
    tidelog outbox relay --dsn shop.db
    python examples/shop.py charge
    python examples/shop.py order alice 30
"""

import argparse
import json
import sqlite3

import tidelog.blocking
from tidelog.idempotent import Inbox
from tidelog.outbox import Outbox

TOPIC, QUEUE = "orders", "charges"
OUTBOX = Outbox("outbox", dialect="sqlite")
INBOX = Inbox("charges", dialect="sqlite")
TABLES = """
create table if not exists orders (id integer primary key, customer text, amount integer);
create table if not exists payments (order_id integer, customer text, amount integer);
"""


def create(connection: sqlite3.Connection, address: str) -> None:
    """Create the tables, and the queue of orders to charge."""
    connection.execute("pragma journal_mode = wal")
    connection.executescript(TABLES + OUTBOX.ddl() + INBOX.ddl())
    with tidelog.blocking.connect(address) as client:
        client.admin.create_topic(TOPIC, partitions=3)
        client.admin.create_queue(QUEUE, topic=TOPIC, visibility_timeout=5)


def order(connection: sqlite3.Connection, customer: str, amount: int) -> None:
    """Place an order: the order and its message are committed together, or not at all."""
    with connection:
        cursor = connection.execute(
            "insert into orders (customer, amount) values (?, ?)", [customer, amount]
        )
        message = {"order": cursor.lastrowid, "customer": customer, "amount": amount}
        OUTBOX.add(connection, TOPIC, json.dumps(message).encode(), key=customer.encode())
    print(f"order {cursor.lastrowid}: {customer} pays {amount}")


def charge(connection: sqlite3.Connection, address: str, *, wait: float, is_endless: bool) -> None:
    """Charge each order once, however often its message is delivered."""
    with tidelog.blocking.connect(address) as client:
        queue = client.queue(QUEUE)
        while (messages := queue.receive(max_messages=10, wait=wait)) or is_endless:
            for message in messages:
                with connection:
                    if INBOX.is_new(connection, message):
                        pay(connection, **json.loads(message.value or b"{}"))
                message.delete()  # After the commit: a crash in between delivers it again.


def pay(connection: sqlite3.Connection, *, order: int, customer: str, amount: int) -> None:
    """Add a payment; it is committed together with the mark of the message."""
    connection.execute("insert into payments values (?, ?, ?)", [order, customer, amount])
    print(f"order {order}: charged {customer} {amount}", flush=True)


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(description="A shop that never charges twice.")
    parser.add_argument("--database", default="shop.db")
    parser.add_argument("--broker", default="127.0.0.1:8433")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("create")
    ordering = commands.add_parser("order")
    ordering.add_argument("customer")
    ordering.add_argument("amount", type=int)
    charging = commands.add_parser("charge")
    charging.add_argument("--until-idle", type=float, metavar="SECONDS")
    given = parser.parse_args()
    connection = sqlite3.connect(given.database, timeout=30)
    if given.command == "create":
        create(connection, given.broker)
    elif given.command == "order":
        order(connection, given.customer, given.amount)
    else:
        idle = given.until_idle
        charge(connection, given.broker, wait=idle or 20, is_endless=idle is None)
    connection.close()


if __name__ == "__main__":
    main()
