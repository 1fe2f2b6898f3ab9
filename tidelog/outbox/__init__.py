"""Transactional outbox: messages that a transaction of a database sends exactly once.

`pip install 'tidelog[outbox]'` brings psycopg for PostgreSQL; SQLite needs nothing. See
`docs/howto/outbox.md`, and `tidelog.idempotent` for the consumer's side.
"""

from tidelog.outbox.errors import (
    DatabaseUnavailableError,
    OutboxError,
    OutboxRowError,
    RelayPositionError,
)
from tidelog.outbox.outbox import Outbox
from tidelog.outbox.rows import OutboxMessage
from tidelog.outbox.store import OutboxStatus

__all__ = [
    "DatabaseUnavailableError",
    "Outbox",
    "OutboxError",
    "OutboxMessage",
    "OutboxRowError",
    "OutboxStatus",
    "RelayPositionError",
]
