"""Drivers of their own: programs that are killed or restarted, `spark-submit`, older sessions."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.paths import ROOT
from tests.system.installed import Installation
from tests.system.spark.first_contact import printed, run
from tests.system.spark.world import World
from tidelog.spark import prepare_java


def test_the_same_program_runs_with_spark_submit(world: World, installation: Installation) -> None:
    world.create()
    world.write([b"one", b"two"])
    program = installation.write("submitted.py", printed(world))
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"

    said = run(installation, str(submit), program, PYSPARK_PYTHON=str(installation.python))

    assert said.count(f"|{world.topic}|") == 2, said
    assert said.endswith("exit code 0")


def test_a_session_that_the_program_created_before_gets_the_format(
    world: World, installation: Installation
) -> None:
    world.create()
    world.write([b"one", b"two"])
    before = "from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate()\n"
    program = installation.write("notebook.py", before + printed(world))
    java = {"JAVA_HOME": str(prepare_java(dict(os.environ)))}

    said = run(installation, str(installation.python), program, **java)

    assert said.count(f"|{world.topic}|") == 2, said
    assert said.endswith("exit code 0")


COPIES_IN_BATCHES = """
import os, signal, sys
from pathlib import Path
from tests.system.spark.session import session
address, source, target, folder, killed_after = sys.argv[1:]
with session(Path(folder)) as spark:
    def copy(batch, batch_id):
        batch.select("value").write.format("tidelog").options(**{
            "bootstrap.servers": address, "topic": target,
            "transactionalId": f"{source}-copier", "transactionalBatchId": batch_id,
        }).mode("append").save()
        if batch_id == int(killed_after):
            os.kill(spark._jvm.ProcessHandle.current().pid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
    stream = spark.readStream.format("tidelog").options(**{
        "bootstrap.servers": address, "subscribe": source, "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100"}).load()
    stream.writeStream.foreachBatch(copy).option(
        "checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start(
    ).awaitTermination()
"""


@pytest.mark.statement("s29", "s31")
def test_a_foreach_batch_with_numbered_writes_is_exactly_once_under_one_name(
    world: World, tmp_path: Path
) -> None:
    """The driver is killed after a commit, before Spark notes the batch."""
    target = world.named(f"{world.topic}-copy")
    world.create()
    target.create(2)
    world.write([b"%d" % number for number in range(150)])
    names = {each.name for each in world.client.admin.list_transactions()}

    def run(killed_after: int) -> "subprocess.CompletedProcess[str]":
        folder = str(tmp_path)
        return subprocess.run(
            [
                *(sys.executable, "-c", COPIES_IN_BATCHES, world.address),
                *(world.topic, target.topic, folder, str(killed_after)),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    killed = run(0)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(target.values()) == 100, "batch 0 is committed"
    repeated = run(-1)

    assert repeated.returncode == 0, repeated.stderr
    assert sorted(int(value or b"") for value in target.values()) == list(range(150))
    assert f"batch 0 of transactionalId '{world.topic}-copier' was committed" in repeated.stderr
    assert "so 100 rows are not written again" in repeated.stderr
    after = {each.name for each in world.client.admin.list_transactions()}
    assert after - names == {f"{world.topic}-copier"}


NEW_CHECKPOINTS = """
import sys
from pathlib import Path
from pyspark.errors import PySparkException
from tests.system.spark.session import session
address, source, target, folder = sys.argv[1:]
with session(Path(folder)) as spark:
    for name, limit in (("one", "100"), ("one", "100"), ("two", "40"), ("two", "40")):
        stream = spark.readStream.format("tidelog").options(**{
            "bootstrap.servers": address, "subscribe": source, "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": limit}).load().select("value")
        number = len(list(Path(folder).glob("checkpoint-*")))
        query = stream.writeStream.format("tidelog").options(**{
            "bootstrap.servers": address, "topic": target, "transactionalId": f"{source}-{name}",
            "checkpointLocation": f"{folder}/checkpoint-{number}"}).trigger(availableNow=True)
        try:
            query.start().awaitTermination()
        except PySparkException as error:
            print(f"query {number} has failed: {error}")
"""


@pytest.mark.statement("s31")
def test_a_new_checkpoint_with_a_used_transactional_id_says_that_it_writes_nothing(
    world: World, tmp_path: Path
) -> None:
    target = world.named(f"{world.topic}-copy")
    world.create()
    target.create()
    world.write([b"%d" % number for number in range(60)])

    run = subprocess.run(
        [
            *(sys.executable, "-c", NEW_CHECKPOINTS, world.address),
            *(world.topic, target.topic, str(tmp_path)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert len(target.values()) == 120, "one batch of the first query, two of the third"
    assert f"batch 0 of transactionalId '{world.topic}-one' was committed" in run.stderr
    assert "so 60 rows are not written again" in run.stderr
    assert "query 3 has failed" in run.stdout
    assert "need another transactionalId" in run.stdout
