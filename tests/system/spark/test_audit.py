"""The usage of principals, summed up by Spark from the audit topic, as its page shows."""

import time
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import DataFrame

from tests.system.docs.site_pages import blocks_in
from tests.system.spark.world import World
from tests.tidelog.brokers import broker_in_a_thread
from tidelog import blocking

PAGE = "docs/audit.md"


def test_spark_adds_up_the_bytes_of_each_principal_and_day(
    shared_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = (block for block in blocks_in(PAGE) if "spark" in block.words)
    for _ in range(2):  # A stop ends the minute and writes its usage.
        with (
            broker_in_a_thread(tmp_path, audit="on") as address,
            blocking.connect(address) as client,
        ):
            if "orders" not in client.admin.list_topics():
                client.admin.create_topic("orders")
            with client.producer() as producer:
                producer.send_many("orders", [b"x" * 1_000] * 100)
    monkeypatch.setenv("TZ", "UTC")
    with broker_in_a_thread(tmp_path, audit="on") as address:
        names: dict[str, object] = {"spark": shared_world.spark}
        text = block.text.replace("127.0.0.1:8433", address)
        exec(compile(text, f"{PAGE}, line {block.line}", "exec"), names)
        rows = cast("DataFrame", names["usage"]).collect()

    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert {row["principal"] for row in rows} == {"anonymous"}
    assert (
        sum(row["bytes_in"] for row in rows) > 2 * 100 * 1_000 / 100
    )  # Batches may be compressed.
    assert today in {str(row["day"]) for row in rows}
