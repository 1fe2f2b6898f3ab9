"""The output of the demonstration; `tests/system/integration` runs it."""

import json
from dataclasses import replace

from tidelog.cli.demo import report_as_facts, report_as_json
from tidelog.demo.queue_story import QueueReport
from tidelog.demo.spark_story import SparkReport
from tidelog.demo.story import Report

REPORT = Report(
    produced=27_004,
    acknowledged=27_004,
    consumed=27_004,
    kills=1,
    under_way_at_kill=250,
    recovery_seconds=0.4321,
    produce_seconds=0.5,
    consume_seconds=0.1,
    queue=QueueReport(deleted=26_483, dead=521, seconds=1.0),
    replayed=27_004,
)


def test_programs_get_every_number_and_the_rates() -> None:
    found = json.loads(json.dumps(report_as_json(REPORT)))

    assert found["under_way_at_kill"] == 250
    assert found["recovery_seconds"] == 0.4321
    assert found["produced_per_second"] == 54_008
    assert found["consumed_per_second"] == 270_040
    assert found["queue"]["dead"] == 521
    assert found["worked_per_second"] == 27_004


def test_text_output_has_units() -> None:
    facts = report_as_facts(REPORT)

    assert facts["recovery"] == "0.43 s from the kill to the next acknowledgement"
    assert facts["produce rate"] == "54,008 records/s, kill and recovery included"
    assert facts["consume rate"] == "270,040 records/s"
    assert facts["as a queue"] == "26,483 deleted, 521 dead letters"
    assert facts["queue rate"] == "27,004 messages/s"
    assert facts["replayed"] == 27_004


def test_the_report_of_spark_is_a_line_of_its_own() -> None:
    spark = SparkReport(rows=27_004, deleted=26_483, start_seconds=6.04, replay_seconds=2.06)

    facts = report_as_facts(replace(REPORT, spark=spark))

    assert facts["with Spark"] == (
        "27,004 records replayed in 2.1 s, once it had started in 6.0 s; in the history of the"
        " queue 26,483 were deleted"
    )
    assert "with Spark" not in report_as_facts(REPORT)
