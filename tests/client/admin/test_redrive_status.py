"""What the partitions of a queue say of a redrive, together."""

from msgspec.structs import replace

from tidelog.client.admin.redrive_status import report_of
from tidelog.wire.messages.redrives import RedriveDescription, RedriveStatus

START_MS = 1_700_000_000_000
RUNNING = RedriveDescription(
    0,
    RedriveStatus.RUNNING,
    START_MS,
    None,
    to_move=100,
    moved=40,
    on_the_way=5,
    left=50,
    skipped=3,
    failed=2,
    messages_per_s=20,
    origin_queue="orders",
)
DONE = replace(
    RUNNING, status=RedriveStatus.COMPLETED, ended_ms=START_MS + 4000, on_the_way=0, left=0
)


def test_it_runs_while_it_does_at_one_partition() -> None:
    report = report_of([DONE, RUNNING, RedriveDescription(2)], START_MS + 8000)

    assert report.status is RedriveStatus.RUNNING
    assert not report.is_over
    assert (report.started_ms, report.ended_ms) == (START_MS, None)
    assert (report.to_move, report.moved, report.left) == (200, 80, 50)
    assert (report.on_the_way, report.skipped, report.failed) == (5, 6, 4)
    assert report.messages_per_s == 10
    assert (report.rate, report.only_from, report.to_topic_id) == (20, "orders", None)


def test_it_is_not_over_while_messages_are_on_their_way() -> None:
    cancelled = replace(RUNNING, status=RedriveStatus.CANCELLED, ended_ms=START_MS + 2000)

    report = report_of([DONE, cancelled], START_MS + 8000)
    assert report.status is RedriveStatus.CANCELLED
    assert not report.is_over

    report = report_of([DONE, replace(cancelled, on_the_way=0)], START_MS + 8000)
    assert report.is_over
    assert report.ended_ms == START_MS + 4000
    assert report.messages_per_s == 20


def test_a_queue_that_never_had_one_has_nothing_to_tell() -> None:
    report = report_of([RedriveDescription(0), RedriveDescription(1)], START_MS)

    assert report.status is None
    assert report.is_over
