"""The package by which Spark finds `format("tidelog")` without registration.

Spark imports all packages named `pyspark_*`. The import never raises: a package that raises ends
the search for all other sources. `register` serves the cases in which Spark does not search:
sources shipped to Spark, and an editable install.
"""

from typing import Any

from tidelog.spark_connector.java import prepare_java
from tidelog.spark_connector.lag import lag

failure: Exception | None = None
"""The error that kept the source from loading, or `None`."""

try:
    from tidelog.spark_connector.source import TidelogSource as DefaultSource
except Exception as error:  # noqa: BLE001 (Spark must find other sources)
    failure = error

__all__ = ["DefaultSource", "failure", "lag", "prepare_java", "register"]


def register(spark: Any) -> None:  # noqa: ANN401 (a session of Spark, or of Spark Connect)
    """Register `format("tidelog")` in a Spark session.

    Raises:
        RuntimeError: pyspark 4.2 or pyarrow 18, or newer, is not installed.
    """
    if failure is not None:
        raise RuntimeError(
            f"the source tidelog cannot be loaded: {failure}; pip install 'tidelog[spark]'"
        ) from failure
    from tidelog.spark_connector.source import TidelogSource  # noqa: PLC0415 (the first import succeeded)

    spark.dataSource.register(TidelogSource)
