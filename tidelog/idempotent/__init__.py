"""Idempotent consumers: effects of messages in a database, each exactly once.

An inbox is the consumer's side of `tidelog.outbox`, and works for records of any producer. See
`docs/howto/outbox.md`.
"""

from tidelog.idempotent.inbox import (
    Identified,
    Inbox,
    InboxPositionError,
    ReadRecords,
    message_id_of,
)

__all__ = ["Identified", "Inbox", "InboxPositionError", "ReadRecords", "message_id_of"]
