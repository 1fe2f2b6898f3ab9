"""The error for records that were deleted before the connector read them.

Pure: no clock, no I/O, no pyspark.
"""

from typing import final

from tidelog.wire.errors import TidelogError


@final
class DataLossError(TidelogError):
    """Records were deleted before they were read, and `failOnDataLoss` is true."""


def lost(what: str) -> DataLossError:
    """Return the error for a loss, with the option that permits it."""
    return DataLossError(f"{what}; set failOnDataLoss to false to go on with what is left")
