"""The package by which Spark finds `format("tidelog")` without registration.

Spark imports all packages named `pyspark_*`. The import never raises: a package that raises ends
the search for all other sources. Programs use `tidelog.spark`, which registers the source: Spark
searches neither in what was shipped to it nor in an editable install.
"""

from tidelog.spark import lag, prepare_java, register, session

failure: Exception | None = None
"""The error that kept the source from loading, or `None`."""

try:
    from tidelog.spark_connector.source import TidelogSource as DefaultSource
except Exception as error:  # noqa: BLE001 (Spark must find other sources)
    failure = error

__all__ = ["DefaultSource", "failure", "lag", "prepare_java", "register", "session"]
