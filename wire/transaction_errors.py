"""What a broker says of transactions of staged writes.

Pure: no clock, no I/O. `wire.errors` offers them with all others.
"""

from typing import final

from wire.broker_error import BrokerError
from wire.error_code import ErrorCode


@final
class StaleTransactionError(BrokerError):
    """A batch with a higher id was committed under this name, or is open."""

    code = ErrorCode.STALE_TRANSACTION


@final
class TransactionGoneError(BrokerError):
    """The batch is not open: aborted, replaced or too old. Nothing of it was or will be visible."""

    code = ErrorCode.TRANSACTION_GONE


@final
class StagedRecordsLostError(BrokerError):
    """The batch is committed, and some of it is missing: somebody accepted a loss of records."""

    code = ErrorCode.STAGED_RECORDS_LOST
