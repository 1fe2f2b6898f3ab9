"""How Spark finds `format("tidelog")` without registration: it imports packages of this name.

Nothing here may fail: one package that does ends the search for all of them. `register` is for
where Spark does not look: sources that were shipped to it, or an editable install.
"""

from typing import Any

from tidelog.spark_connector.java import prepare_java
from tidelog.spark_connector.lag import lag

failure: Exception | None = None
"""Why the source is not there, `None` if it is."""

try:
    from tidelog.spark_connector.source import TidelogSource as DefaultSource
except Exception as error:  # noqa: BLE001 (whatever it is, others must be found)
    failure = error

__all__ = ["DefaultSource", "failure", "lag", "prepare_java", "register"]


def register(spark: Any) -> None:  # noqa: ANN401 (a session of Spark, or of Spark Connect)
    """Have a session find `format("tidelog")`.

    Raises:
        RuntimeError: pyspark 4.2 or pyarrow 18 is missing, or older.
    """
    if failure is not None:
        raise RuntimeError(
            f"the source tidelog cannot be loaded: {failure}; pip install 'tidelog[spark]'"
        ) from failure
    from tidelog.spark_connector.source import TidelogSource  # noqa: PLC0415 (it is there by now)

    spark.dataSource.register(TidelogSource)
