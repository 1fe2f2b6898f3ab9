"""Tests of the package that Spark imports by itself, whose import must never fail."""

import os
import subprocess
import sys

import pytest

import pyspark_tidelog
from tests.paths import ROOT


def run_python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


@pytest.mark.statement("s42")
@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_the_import_succeeds_without_pyspark_or_pyarrow_and_register_names_the_extra(
    missing: str,
) -> None:
    said = run_python(
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import pyspark_tidelog\n"
        "assert not hasattr(pyspark_tidelog, 'DefaultSource')\n"
        "try: pyspark_tidelog.register(None)\n"
        "except RuntimeError as error: print(error)"
    )

    assert missing in said
    assert said.endswith("pip install 'tidelog[spark]'")


@pytest.mark.statement("s1")
def test_the_source_loads_and_can_be_registered() -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    registered: list[object] = []

    class Sources:
        def register(self, source: object) -> None:
            registered.append(source)

    class Session:
        dataSource = Sources()  # noqa: N815 (as Spark calls it)

    pyspark_tidelog.register(Session())

    assert registered == [pyspark_tidelog.DefaultSource]
    assert pyspark_tidelog.DefaultSource.name() == "tidelog"


@pytest.mark.statement("s42")
def test_options_and_offsets_import_neither_spark_nor_arrow_nor_trio() -> None:
    said = run_python(
        "import sys\n"
        "import tidelog.spark_connector.options\n"
        "import tidelog.spark_connector.read.read_options\n"
        "import tidelog.spark_connector.read.offset_ranges\n"
        "import tidelog.spark_connector.lag, tidelog.spark_connector.read.stream_source\n"
        "print(*sorted({'pyspark', 'pyarrow', 'trio', 'pandas', 'numpy'} & sys.modules.keys()))"
    )

    assert said == ""
