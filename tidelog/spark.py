"""Spark sessions that have `format("tidelog")`; needs `pip install 'tidelog[spark]'`.

    import tidelog.spark

    spark = tidelog.spark.session()
    orders = spark.read.format("tidelog").option("subscribe", "orders")

The same call serves scripts, notebooks and `spark-submit`. The import needs no pyspark.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark_connector.java import JavaMissingError, prepare_java, use_this_python
from tidelog.spark_connector.lag import lag, metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

__all__ = [
    "JavaMissingError",
    "commit_each_batch",
    "lag",
    "metrics",
    "prepare_java",
    "register",
    "session",
    "watch",
]

_INSTALL: Final = "pip install 'tidelog[spark]'"
_RUNNING_JVM: Final = "PYSPARK_GATEWAY_PORT"
"""Variable by which `spark-submit` names its Java to the program that it starts."""


def session(builder: "SparkSession.Builder | None" = None) -> "SparkSession":
    """Return a Spark session that has `format("tidelog")`.

    The function returns the active session if there is one. Otherwise it finds a Java and makes
    Spark use the running Python, as `prepare_java` does, and creates the session. Then it registers
    the format. `PYSPARK_PYTHON` and `JAVA_HOME` of the environment win.

    Args:
        builder: The settings of a new session, such as `SparkSession.builder.appName("report")`.

    Raises:
        JavaMissingError: No Java 17 or newer was found; the message says what to install.
        RuntimeError: pyspark 4.2 or pyarrow 18, or newer, is not installed.
    """
    try:
        from pyspark import SparkContext  # noqa: PLC0415 (an extra)
        from pyspark.sql import SparkSession as Session  # noqa: PLC0415 (the same)
    except ImportError as error:
        raise _not_installed(error) from error
    chosen = Session.builder if builder is None else builder
    given: Mapping[str, object] = getattr(chosen, "_options", {})
    remote = str(given.get("spark.remote") or os.environ.get("SPARK_REMOTE") or "local")
    # Spark has no other way to ask for a context without a session.
    active = SparkContext._active_spark_context  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if active is None and remote.startswith("local") and _RUNNING_JVM not in os.environ:
        prepare_java()
    use_this_python(os.environ)
    if active is not None and str(active.master).startswith("local"):
        # The program may have created it before the variable was set.
        active.pythonExec = os.environ["PYSPARK_PYTHON"]
    found = chosen.getOrCreate()
    register(found)
    return found


def register(spark: Any) -> None:  # noqa: ANN401 (a session of Spark, or of Spark Connect)
    """Register `format("tidelog")` in a Spark session; `session` does it too.

    Raises:
        RuntimeError: pyspark 4.2 or pyarrow 18, or newer, is not installed.
    """
    try:
        from tidelog.spark_connector.source import TidelogSource  # noqa: PLC0415 (needs the extra)
    except Exception as error:
        raise _not_installed(error) from error
    spark.dataSource.register(TidelogSource)


def commit_each_batch(
    spark: "SparkSession", options: Mapping[str, str] | None = None
) -> "StreamingQueryListener":
    """Commit each batch of the streams with a `groupId` as soon as the sink has written it.

    Call it once in a session, before its queries start. Without it a stream commits a batch when
    Spark asks for the next one, so after a stop its group may lack the last batch. The listener
    that is added and returned sends the commits from this program.

    Args:
        spark: The session.
        options: Credentials and TLS of the queries, such as `client.token`, unless the environment
            or a profile has them. The brokers are those of the queries.

    Raises:
        ConfigError: An option is none of the connection, or invalid.
        RuntimeError: pyspark 4.2 or pyarrow 18, or newer, is not installed.
    """
    try:
        from tidelog.spark_connector.group_commits import (  # noqa: PLC0415 (needs the extra)
            GroupCommits,
        )
    except ImportError as error:
        raise _not_installed(error) from error
    listener = GroupCommits(options or {})
    spark.streams.addListener(listener)
    return listener


def watch(
    spark: "SparkSession", report: Callable[[str, Mapping[str, float]], object] | None = None
) -> "StreamingQueryListener":
    """Report the metrics of the streams of a session after each of their batches.

    Call it once in a session, before its queries start. `spark.streams.removeListener` removes the
    listener that is added and returned.

    Args:
        spark: The session.
        report: Called with the name of a query, or its id without one, and with its `metrics`; by a
            thread of Spark's. The default writes a line to the log `tidelog.spark`: a warning when
            a query has lost data, information otherwise.

    Raises:
        RuntimeError: pyspark 4.2 or pyarrow 18, or newer, is not installed.
    """
    try:
        from tidelog.spark_connector.progress_listener import (  # noqa: PLC0415 (needs the extra)
            ProgressListener,
        )
    except ImportError as error:
        raise _not_installed(error) from error
    listener = ProgressListener(report)
    spark.streams.addListener(listener)
    return listener


def _not_installed(error: Exception) -> RuntimeError:
    return RuntimeError(f"the source tidelog cannot be loaded: {error}; {_INSTALL}")
