"""Tests that each queue checker objects to histories that break its promise, and to no others."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.queues.journal_checkers import JournalIsKept
from tests.simulation.queues.plans import QueueSetup
from tests.simulation.queues.run import checkers
from tests.simulation.queues.run_history import (
    Delivered,
    FinalMessage,
    FinalTopic,
    Outcome,
    QueueChecker,
    QueueRunHistory,
    Sent,
    Settlement,
)
from tidelog.wire.messages.queues import SettleAction

SENT_MS, MOVED_MS = 1000, 2000
JOBS = QueueSetup(
    "jobs", "jobs", 1, settings={"dead_letter_queue": "dead", "max_receive_count": "2"}
)
DEAD = QueueSetup("dead", "dead", 1)
STEPS = QueueSetup("steps", "steps", 1, is_fifo=True)
LEADER_ACKS = QueueSetup("leader_acks", "jobs", 1)
SETUPS = (DEAD, JOBS, STEPS, LEADER_ACKS)
Story = Callable[[QueueRunHistory], None]
HELD_S = 10.0


def run_history_of(*, lead_s: float = 0.0) -> QueueRunHistory:
    told = [each for each in checkers() if not isinstance(each, JournalIsKept)]
    return QueueRunHistory(told, SETUPS, lead_s=lead_s)


FIRST = Delivered("jobs", (0, 0), b"0", b"g", 1, b"1", HELD_S, 0.0, 0.0)


def got(at: float, *, offset: int = 0, **fields: Any) -> Delivered:  # noqa: ANN401  (passed on)
    renamed = {"count": "receive_count"}
    changes = {renamed.get(name, name): value for name, value in fields.items()}
    base = {"place": (0, offset), "value": b"%d" % offset, "asked_at": at, "told_at": at}
    return msgspec.structs.replace(FIRST, **(base | changes))


def delivered(*deliveries: Delivered) -> Story:
    def tell(run_history: QueueRunHistory) -> None:
        for each in deliveries:
            run_history.delivered(each)

    return tell


def settlement_asked(
    delivery: Delivered,
    action: SettleAction,
    at: float,
    *,
    outcome: Outcome | None = Outcome.DONE,
    seconds: float | None = None,
    reason: str = "",
) -> Story:
    def tell(run_history: QueueRunHistory) -> None:
        settlement = Settlement(delivery, action, at, seconds, reason)
        run_history.settlement_asked(settlement)
        if outcome is not None:
            run_history.told(settlement, outcome, at)

    return tell


def disturbed(queue: str, until: float) -> Story:
    return lambda run_history: run_history.disturbed(queue, until)


def sent(
    value: bytes, *, at: float = 0.0, delay_s: float = 0.0, offset: int | None = None
) -> Story:
    def tell(run_history: QueueRunHistory) -> None:
        message = Sent("jobs", value, b"g", at, delay_s)
        run_history.sent(message)
        if offset is not None:
            run_history.acknowledged(message, (0, offset))

    return tell


def letter(
    offset: int = 0,
    *,
    value: bytes = b"0",
    count: int = 2,
    reason: str = "max_receive_count",
    sent_ms: int = SENT_MS,
    moved_ms: int = MOVED_MS,
) -> FinalMessage:
    headers = {
        "tidelog.origin.queue": b"jobs",
        "tidelog.origin.partition": b"0",
        "tidelog.origin.offset": b"%d" % offset,
        "tidelog.receive_count": b"%d" % count,
        "tidelog.reason": reason.encode(),
        "tidelog.last_received_ms": b"%d" % (MOVED_MS - 1),
        "tidelog.first_sent_ms": b"%d" % sent_ms,
    }
    return FinalMessage(value, b"g", headers, moved_ms)


def back(value: bytes = b"0") -> FinalMessage:
    """Return a dead letter that was redriven."""
    return FinalMessage(value, b"g", {"tidelog.first_sent_ms": b"%d" % SENT_MS}, MOVED_MS)


def message(value: bytes, group: bytes = b"g") -> FinalMessage:
    return FinalMessage(value, group, {}, SENT_MS)


def ended(
    *jobs: FinalMessage, dead: tuple[FinalMessage, ...] = (), steps: tuple[FinalMessage, ...] = ()
) -> Story:
    def tell(run_history: QueueRunHistory) -> None:
        contents = {"jobs": jobs, "dead": dead, "steps": steps}
        topics: Mapping[str, FinalTopic] = {
            name: {(0, offset): each for offset, each in enumerate(messages)}
            for name, messages in contents.items()
        }
        run_history.ended(topics)

    return tell


DELETE, EXTEND, RELEASE, REJECT = (
    SettleAction.DELETE,
    SettleAction.EXTEND,
    SettleAction.RELEASE,
    SettleAction.REJECT,
)
DELETED = (delivered(got(1)), settlement_asked(got(1), DELETE, 2))
LEADER_ACKS_DONE = settlement_asked(got(1, queue="leader_acks"), DELETE, 2)
DEAD_DONE = settlement_asked(got(1, queue="dead"), DELETE, 2)
BACK_DONE = [
    settlement_asked(got(30, queue=queue, offset=offset), DELETE, 31)
    for queue in ("jobs", "leader_acks")
    for offset in (1, 2)
]
STEPS_DONE = [
    settlement_asked(got(9, queue="steps", offset=offset), DELETE, 9.0) for offset in range(3)
]
WRONG: dict[str, tuple[str, list[Story]]] = {
    "deleted comes again": ("DeletedIsGone", [*DELETED, delivered(got(20, receipt=b"2", count=2))]),
    "two have it": ("OneHolder", [delivered(got(1), got(9, receipt=b"2", count=2, asked_at=0.5))]),
    "an extension is cut short": (
        "OneHolder",
        [
            delivered(got(1)),
            settlement_asked(got(1), EXTEND, 5, seconds=10.0),
            delivered(got(14, receipt=b"2", count=2)),
        ],
    ),
    "a count stands still": ("CountsAreExact", [delivered(got(1), got(20, receipt=b"2"))]),
    "a count falls": (
        "CountsAreExact",
        [delivered(got(1, queue="steps", count=3), got(20, queue="steps", receipt=b"2", count=1))],
    ),
    "too many deliveries": ("CountsAreExact", [delivered(got(1, count=3))]),
    "a stale receipt extends": (
        "StaleIsFenced",
        [
            delivered(got(1), got(20, receipt=b"2", count=2)),
            settlement_asked(got(1), EXTEND, 21, seconds=1.0),
        ],
    ),
    "a stale receipt deletes in a fenced queue": (
        "StaleIsFenced",
        [
            delivered(got(1, queue="steps"), got(20, queue="steps", receipt=b"2", count=2)),
            settlement_asked(got(1, queue="steps"), DELETE, 21),
        ],
    ),
    "a delay is not kept": (
        "DelayIsKept",
        [sent(b"0", at=1.0, delay_s=5.0), delivered(got(5.9))],
    ),
    "sent and not there": ("SentIsThere", [sent(b"0", offset=0), ended()]),
    "sent and another": ("SentIsThere", [sent(b"0", offset=0), ended(message(b"1"))]),
    "sent once and there twice": (
        "SentIsThere",
        [sent(b"0", offset=0), ended(message(b"0"), message(b"0"))],
    ),
    "another value is delivered": (
        "SentIsThere",
        [delivered(got(1, value=b"x")), ended(message(b"0"))],
    ),
    "lost": ("AllAccountedFor", [delivered(got(1)), ended(message(b"0"))]),
    "lost by one queue of two": ("AllAccountedFor", [*DELETED, ended(message(b"0"))]),
    "brought back twice": (
        "AllAccountedFor",
        [
            sent(b"0", offset=0),
            LEADER_ACKS_DONE,
            *BACK_DONE,
            ended(message(b"0"), back(), back(), dead=(letter(),)),
        ],
    ),
    "a dead letter is lost": (
        "AllAccountedFor",
        [LEADER_ACKS_DONE, ended(message(b"0"), dead=(letter(),))],
    ),
    "dead twice": (
        "DeadOnce",
        [LEADER_ACKS_DONE, ended(message(b"0"), dead=(letter(), letter()))],
    ),
    "dead and another": ("DeadOnce", [ended(message(b"0"), dead=(letter(value=b"x"),))]),
    "dead too soon": ("DeadOnce", [ended(message(b"0"), dead=(letter(count=1),))]),
    "dead for nothing": (
        "DeadOnce",
        [ended(message(b"0"), dead=(letter(reason="no reason"),))],
    ),
    "dead and sent at another time": (
        "DeadOnce",
        [ended(message(b"0"), dead=(letter(sent_ms=SENT_MS + 1),))],
    ),
    "dead and as old as it was": (
        "DeadOnce",
        [ended(message(b"0"), dead=(letter(moved_ms=SENT_MS),))],
    ),
    "rejected and nowhere": (
        "DeadOnce",
        [
            delivered(got(1)),
            settlement_asked(got(1), REJECT, 2, reason="bad"),
            ended(message(b"0")),
        ],
    ),
    "a handler overtakes": (
        "GroupsInOrder",
        [
            delivered(
                got(1, queue="steps", is_handled=True),
                got(2, queue="steps", offset=1, is_handled=True),
            ),
            *STEPS_DONE,
            ended(steps=(message(b"0"), message(b"1"))),
        ],
    ),
    "a head is skipped": (
        "GroupsInOrder",
        [
            delivered(got(1, queue="steps", offset=1)),
            *STEPS_DONE,
            ended(steps=(message(b"0"), message(b"1"))),
        ],
    ),
}
RIGHT: dict[str, list[Story]] = {
    "a receive that began before": [
        *DELETED,
        delivered(got(20, receipt=b"2", count=2, asked_at=1.5)),
    ],
    "a seek brings back": [
        *DELETED,
        disturbed("jobs", 15),
        delivered(got(20, receipt=b"2", count=1)),
    ],
    "a lease is over": [delivered(got(1), got(11.1, receipt=b"2", count=2))],
    "a lease was released": [
        delivered(got(1)),
        settlement_asked(got(1), RELEASE, 2, outcome=None),
        delivered(got(3, receipt=b"2", count=2)),
    ],
    "an extension may be shorter": [
        delivered(got(1)),
        settlement_asked(got(1), EXTEND, 2, outcome=Outcome.UNKNOWN, seconds=1.0),
        delivered(got(3.1, receipt=b"2", count=2)),
    ],
    "leader_acks": [
        delivered(got(1, queue="leader_acks"), got(2, queue="leader_acks", receipt=b"2"))
    ],
    "a stale receipt deletes": [
        delivered(got(1), got(20, receipt=b"2", count=2)),
        settlement_asked(got(1), DELETE, 21),
    ],
    "deleted twice in a fenced queue": [
        delivered(got(1, queue="steps"), got(20, queue="steps", receipt=b"2", count=2)),
        settlement_asked(got(20, queue="steps", receipt=b"2", count=2), DELETE, 20.5, outcome=None),
        settlement_asked(got(1, queue="steps"), DELETE, 21),
    ],
    "a delay is kept": [sent(b"0", at=1.0, delay_s=5.0), delivered(got(6.1))],
    "all is well": [
        sent(b"0", offset=0),
        *DELETED,
        LEADER_ACKS_DONE,
        ended(message(b"0")),
    ],
    "dead": [
        delivered(got(1), got(20, receipt=b"2", count=2)),
        LEADER_ACKS_DONE,
        DEAD_DONE,
        ended(message(b"0"), dead=(letter(),)),
    ],
    "brought back": [
        sent(b"0", offset=0),
        delivered(got(1), got(20, receipt=b"2", count=2)),
        LEADER_ACKS_DONE,
        *BACK_DONE[::2],
        ended(message(b"0"), back(), dead=(letter(),)),
    ],
    "rejected": [
        delivered(got(1)),
        settlement_asked(got(1), REJECT, 2, reason="bad"),
        LEADER_ACKS_DONE,
        DEAD_DONE,
        ended(message(b"0"), dead=(letter(count=1, reason="bad"),)),
    ],
    "purged": [
        sent(b"0", at=1.0, offset=0),
        lambda run_history: run_history.purged("jobs", 2.0),
        LEADER_ACKS_DONE,
        ended(message(b"0")),
    ],
    "deleted during a seek": [
        disturbed("jobs", 99),
        *DELETED,
        LEADER_ACKS_DONE,
        ended(message(b"0")),
    ],
    "a group in order": [
        delivered(got(1, queue="steps")),
        settlement_asked(got(1, queue="steps"), DELETE, 2),
        delivered(
            got(3, queue="steps", offset=1, receipt=b"2"),
            got(3, queue="steps", offset=2, receipt=b"2"),
        ),
        *STEPS_DONE,
        ended(steps=(message(b"0"), message(b"1"), message(b"2"))),
    ],
    "another group": [
        delivered(got(1, queue="steps", offset=1, group=b"h")),
        *STEPS_DONE,
        ended(steps=(message(b"0"), message(b"1", b"h"))),
    ],
}


@pytest.mark.parametrize(("checker", "stories"), WRONG.values(), ids=WRONG)
def test_a_checker_objects_to_a_broken_promise(checker: str, stories: list[Story]) -> None:
    run_history = run_history_of()

    def tell_all() -> None:
        for tell in stories:
            tell(run_history)

    with pytest.raises(ViolationError) as objection:
        tell_all()

    assert objection.value.checker == checker


@pytest.mark.parametrize("stories", RIGHT.values(), ids=RIGHT)
def test_no_checker_objects_to_a_valid_history(stories: list[Story]) -> None:
    run_history = run_history_of()

    for tell in stories:
        tell(run_history)


def test_leases_may_differ_by_the_clock_error() -> None:
    run_history = run_history_of(lead_s=3.0)

    delivered(got(1), got(7, receipt=b"2", count=2))(run_history)
    with pytest.raises(ViolationError, match="another holder has it"):
        delivered(got(8, receipt=b"3", count=3))(run_history)


def test_every_checker_has_an_invalid_history() -> None:
    tested_elsewhere = {JournalIsKept}
    assert {checker for checker, _ in WRONG.values()} == {
        promise.__name__
        for promise in QueueChecker.__subclasses__()
        if promise not in tested_elsewhere
    }
