"""Credentials of Spark jobs: executors have them, plans and errors do not."""

import contextlib
import io
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.system.spark.world import World

SECRET = "a very secret password"


@pytest.fixture
def credentials(world: World) -> dict[str, str]:
    """Return the options of a user that no other test has."""
    name = f"user-{world.topic}"
    world.client.security.create_user(name, SECRET)
    return {"client.user": name, "client.password": SECRET}


def explained(world: World, options: dict[str, str]) -> str:
    """Return all plans of a query."""
    table = world.load(**options).groupBy("partition").count()
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        for mode in ("extended", "formatted", "cost", "codegen"):
            table.explain(mode=mode)
    return shown.getvalue()


def test_a_job_reads_with_a_password_that_no_plan_shows(
    world: World, credentials: dict[str, str]
) -> None:
    world.create(2)
    world.write([b"a", b"b"])
    assert sorted(filter(None, world.values(**credentials))) == [b"a", b"b"]

    plans = explained(world, credentials)
    assert "tidelog" in plans
    assert SECRET not in plans


def test_a_job_writes_with_a_token_that_no_plan_shows(
    world: World, credentials: dict[str, str]
) -> None:
    world.create()
    token = world.client.security.create_token(credentials["client.user"])
    table = world.spark.sql("SELECT CAST('written' AS BINARY) AS value")
    writer = table.write.format("tidelog").option("bootstrap.servers", world.address)
    writer.option("topic", world.topic).option("client.token", token).mode("append").save()
    assert world.values(**{"client.token": token}) == [b"written"]
    assert token not in explained(world, {"client.token": token})


def test_a_stream_keeps_no_secret_in_its_checkpoint_and_its_progress(
    world: World, credentials: dict[str, str], tmp_path: Path
) -> None:
    world.create()
    world.write([b"a"])
    stream = world.spark.readStream.format("tidelog").options(**world.options(**credentials))
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.lastProgress is not None
    assert SECRET not in str(query.lastProgress)
    for file in (tmp_path / "checkpoint").rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes(), file


def test_a_refused_job_says_so_without_the_secret(world: World) -> None:
    world.create()
    wrong = {"client.user": "mallory", "client.password": SECRET}
    with pytest.raises(PySparkException, match="authentication failed; check") as raised:
        world.values(**wrong)
    assert SECRET not in str(raised.value)
