"""What is said when records that were to be read are not there any more.

Pure: no clock, no I/O, no pyspark.
"""

from typing import final

from tidelog.wire.errors import TidelogError


@final
class DataLossError(TidelogError):
    """Records that were to be read are gone, and nobody said that this does not matter."""


def lost(what: str) -> DataLossError:
    """Return the error that says what is lost, and how to go on without it."""
    return DataLossError(f"{what}; set failOnDataLoss to false to go on with what is left")
