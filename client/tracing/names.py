"""Names of spans and attributes, by the semantic conventions of OpenTelemetry for messaging.

The conventions are not stable (status "Development"), so these names may change in any version.
"""

from typing import Final

SYSTEM: Final = "messaging.system"
TIDELOG: Final = "tidelog"
"""Value of `SYSTEM`."""
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
"""Name of the topic or of the queue."""
PARTITION: Final = "messaging.destination.partition.id"
MESSAGE_ID: Final = "messaging.message.id"
"""Id of one message, such as `0-17`: partition and offset."""
MESSAGE_COUNT: Final = "messaging.batch.message_count"
CLIENT_ID: Final = "messaging.client.id"
GROUP: Final = "messaging.consumer.group.name"
ERROR_TYPE: Final = "error.type"

FAILED_COUNT: Final = "messaging.tidelog.batch.failed_count"
"""Messages of a batch that were not acknowledged."""
RECEIVE_COUNT: Final = "messaging.tidelog.message.receive_count"
HOLDER: Final = "messaging.tidelog.message.holder"
"""Name of the receiver that had the message."""
OUTCOME: Final = "messaging.tidelog.message.outcome"
"""End of a wait or a lease in a replayed history."""
REASON: Final = "messaging.tidelog.message.reason"

CREATE: Final = "create"
SEND: Final = "send"
RECEIVE: Final = "receive"
PROCESS: Final = "process"
SETTLE: Final = "settle"
"""Operation type; the operation names are those of the methods, such as `delete`."""

HISTORY: Final = "history"
WAIT: Final = "wait"
LEASE: Final = "lease"
"""Operation names of replayed spans."""
