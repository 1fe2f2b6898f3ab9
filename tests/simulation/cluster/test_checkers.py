"""Tests of each checker of a cluster: histories that keep and that break its promise."""

from collections.abc import Callable

import msgspec
import pytest

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster import replica_log
from tests.simulation.cluster.cluster_history import (
    Applied,
    Elected,
    GroupCommit,
    NodeChecker,
    Served,
    Voted,
    Work,
)
from tests.simulation.cluster.consensus_checkers import (
    AppliedInOrder,
    ElectionSafety,
    LeaderCompleteness,
    OneVote,
    StateMachineSafety,
    StatesAgree,
    TermNeverFalls,
)
from tests.simulation.cluster.group_checkers import CommitsStay, OneOwner
from tests.simulation.cluster.metadata_checkers import (
    AnswersAreCommitted,
    FencedIsSilent,
    LeadersAreAlive,
    NamesAreUnique,
    OneLeader,
)
from tests.simulation.cluster.replica_log import Appended, Opened, ReplicaLog, Shown, ToldEnd
from tests.simulation.cluster.replication_checkers import (
    CommittedIsEverywhere,
    CommittedIsNotCut,
    HighWatermarkStays,
    JoinersAreKnown,
    JoinersHaveAll,
    LatestRises,
    LogsMatch,
    LossIsAccepted,
    ReplicaStays,
    TooFewIsSaid,
)
from tidelog.coordinator.groups.records import (
    AssignmentChanged,
    GroupDeleted,
    MemberJoined,
    MemberLeft,
    OffsetsCommitted,
    OffsetsReset,
    StaticMemberReplaced,
    TopicForgotten,
)
from tidelog.coordinator.metadata.catalog import TopicAltered, TopicCreated, TopicDeleted
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerRegistration,
    ChangedPartition,
    ChangedTopic,
    PartitionRegistration,
    PartitionsAdded,
    PartitionsChanged,
)
from tidelog.wire.messages.groups import PartitionCommit, Subscription, TopicPartitions

Story = Callable[[NodeChecker], None]

TOPIC = bytes(16)
PLACE = (TOPIC, 0)
CREATED = TopicCreated("t", TOPIC, 1, {"a": "1"})
DELETED = TopicDeleted(TOPIC)


def at(second: float) -> Story:
    """Set the time."""

    def tell(checker: NodeChecker) -> None:
        checker.now = lambda: second

    return tell


def elected(node_id: int, term: int, *entries: tuple[int, int]) -> Story:
    return lambda checker: checker.elected(
        Elected(node_id, term, lambda index, term: (index, term) in entries)
    )


def began(node_id: int, applied_index: int = 0) -> Story:
    return lambda checker: checker.began(node_id, applied_index)


def spoke(node: str, term: int) -> Story:
    return lambda checker: checker.spoke(node, term)


def voted(voter: str, term: int, candidate: str) -> Story:
    return lambda checker: checker.voted(Voted(voter, term, candidate))


def applied(node_id: int, index: int, term: int = 1, *, content: bytes = b"", **at: int) -> Story:
    told = Applied(node_id, index, term, content, at.get("node_term", term))
    return lambda checker: checker.applied(told)


def restored(node_id: int, index: int, term: int = 1) -> Story:
    return lambda checker: checker.restored(node_id, index, term)


def seen(state: bytes, expected: bytes | None) -> Story:
    return lambda checker: checker.state_seen(1, 8, state, expected=expected)


def ended(*states: tuple[int, bytes]) -> Story:
    return lambda checker: checker.ended(dict(enumerate(states, 1)))


def committed(*records: object) -> Story:
    return lambda checker: checker.committed(7, records)


def told_created(name: str, topic_id: bytes = TOPIC) -> Story:
    return lambda checker: checker.told_created(name, topic_id)


def told_deleted(name: str, asked_at: float) -> Story:
    return lambda checker: checker.told_deleted(name, asked_at)


def told_altered(value: str, asked_at: float) -> Story:
    return lambda checker: checker.told_altered("t", {"a": value}, asked_at)


def registered(node_id: int) -> BrokerRegistered:
    return BrokerRegistered(BrokerRegistration(node_id, f"disk {node_id}", "x", 1, "host", 1, ""))


def let_in(node_id: int) -> BrokerChanged:
    return BrokerChanged(node_id, is_fenced=False, is_shutting_down=False)


def fenced(node_id: int) -> BrokerChanged:
    return BrokerChanged(node_id, is_fenced=True, is_shutting_down=False)


def led_by(
    leader: int | None, epoch: int = 0, *, leader_epoch: int | None = None
) -> PartitionRegistration:
    in_sync = () if leader is None else (leader,)
    leader_epoch = epoch if leader_epoch is None else leader_epoch
    return PartitionRegistration((1, 2), in_sync, (), leader, leader_epoch, epoch)


def added(leader: int | None) -> PartitionsAdded:
    return PartitionsAdded(TOPIC, [led_by(leader)])


def changed(partition: PartitionRegistration) -> PartitionsChanged:
    return PartitionsChanged([ChangedTopic(TOPIC, [ChangedPartition(0, partition)])])


def served(node_id: int, asked_at: float) -> Story:
    return lambda checker: checker.served(Served(node_id, PLACE, asked_at))


def given(member_id: str, *, released: bool = False) -> AssignmentChanged:
    partitions = [TopicPartitions(TOPIC, [0])]
    gets, loses = ([], partitions) if released else (partitions, [])
    return AssignmentChanged("g", member_id, 1, gets, [], loses)


def offset(at: int, member_id: str = "m") -> OffsetsCommitted:
    return OffsetsCommitted("g", member_id, 1, 0, [PartitionCommit(TOPIC, 0, at)])


def told_committed(at: int) -> Story:
    return lambda checker: checker.told_committed(GroupCommit("g", PLACE, at))


def found_committed(at: int, least: int) -> Story:
    return lambda checker: checker.found_committed(GroupCommit("g", PLACE, at), least)


def joined(member_id: str) -> MemberJoined:
    subscription = Subscription(["t"])
    name = f"process of {member_id}"
    return MemberJoined("g", 1, member_id, subscription, 1, "uniform", 1000, client_id=name)


def works(member_id: str) -> Story:
    return lambda checker: checker.worked(Work("g", f"process of {member_id}", PLACE))


def log(end: int, durable: int | None = None, *epochs: tuple[int, int], **more: int) -> ReplicaLog:
    """Return a log that is on the disk up to `durable`, all of it if that is `None`."""
    durable = end if durable is None else durable
    return ReplicaLog(end, durable, epochs or ((1, 0),), **more)  # type: ignore[arg-type]


def shown(high_watermark: int, *logs: ReplicaLog, leader: tuple[int, int] | None = (1, 1)) -> Shown:
    """Require the committed records, written in epoch 1, on all nodes from 1 on."""
    nodes = dict(enumerate(logs, 1))
    return Shown(PLACE, leader, high_watermark, 1, list(nodes), nodes, is_durable=True)


def shows(*seen: Shown) -> Story:
    def tell(checker: NodeChecker) -> None:
        for each in seen:
            checker.shown(each)

    return tell


def opened(found: ReplicaLog, before: ReplicaLog | None) -> Story:
    return lambda checker: checker.opened(Opened(1, PLACE, found, before))


def told_end(end_offset: int, asked_at: float) -> Story:
    return lambda checker: checker.told_end(ToldEnd(1, PLACE, end_offset, asked_at))


def known_end(end_offset: int) -> Story:
    return lambda checker: checker.known_end(PLACE, end_offset)


def appended(asked_at: float) -> Story:
    return lambda checker: checker.appended(Appended(1, PLACE, asked_at))


TOO_FEW = msgspec.structs.replace(shown(5), has_enough=False)
LED_BY_2 = msgspec.structs.replace(shown(5, leader=None), agreed_leader=2)
IN_MEMORY = msgspec.structs.replace(shown(5, log(5, 4)), is_durable=False)
IN_TWO_EPOCHS = log(9, 9, (1, 0), (2, 6))
CUT_AT_ITS_START = log(9, 9, (1, 3), (2, 6), log_start_offset=3)

CUTS, ASKED = (
    replica_log.Cut(1, PLACE, 5, 6),
    replica_log.Asked(1, PLACE, [2], [(2, 7)], 6, {2: log(5)}),
)
MOVED = [committed(added(1)), committed(changed(led_by(2, 1)))]
LOST = replica_log.Lost(PLACE, 3, 6, [], is_durable=False)
JOINED = replica_log.Joined(2, PLACE, 7)

RESET = OffsetsReset("g", 0, [PartitionCommit(TOPIC, 0, 3)])

KEPT: list[tuple[type[NodeChecker], list[Story]]] = [
    (ElectionSafety, [elected(1, 1), elected(2, 2), elected(1, 3)]),
    (LeaderCompleteness, [elected(1, 1), applied(1, 4, 1), elected(2, 2, (4, 1))]),
    (LeaderCompleteness, [applied(1, 4, 1), applied(1, 5, 3), elected(2, 2, (4, 1))]),
    (LeaderCompleteness, [applied(1, 4), applied(1, 5, node_term=3), elected(2, 2, (4, 1))]),
    (
        StateMachineSafety,
        [applied(1, 1, 1, content=b"x"), applied(2, 1, 1, content=b"x"), restored(3, 1, 1)],
    ),
    (AppliedInOrder, [began(1, 3), applied(1, 4), restored(1, 9), applied(1, 10)]),
    (AppliedInOrder, [began(1), applied(1, 1), began(1), applied(1, 1)]),
    (TermNeverFalls, [spoke("a", 4), spoke("a", 4), spoke("b", 1)]),
    (OneVote, [voted("a", 4, "b"), voted("a", 4, "b"), voted("a", 5, "a"), voted("b", 5, "b")]),
    (StatesAgree, [seen(b"x", b"x"), seen(b"x", None), ended((9, b"y"), (9, b"y"))]),
    (AnswersAreCommitted, [committed(CREATED), told_created("t")]),
    (AnswersAreCommitted, [committed(CREATED), at(4), committed(DELETED), told_deleted("t", 3)]),
    (AnswersAreCommitted, [committed(CREATED), committed(DELETED), told_deleted("t", 3)]),
    (
        AnswersAreCommitted,
        [committed(CREATED, DELETED), at(4), committed(CREATED), told_deleted("t", 3)],
    ),
    (AnswersAreCommitted, [committed(CREATED), told_altered("1", 3)]),
    (
        AnswersAreCommitted,
        [
            committed(CREATED),
            at(4),
            committed(TopicAltered(TOPIC, {"a": "2"})),
            at(5),
            told_altered("2", 3),
            told_altered("1", 3),
        ],
    ),
    (NamesAreUnique, [committed(CREATED), committed(DELETED)]),
    (NamesAreUnique, [committed(CREATED, TopicCreated("u", b"u" * 16, 1, {}))]),
    (LeadersAreAlive, [committed(registered(1)), committed(let_in(1)), committed(added(1))]),
    (
        LeadersAreAlive,
        [
            committed(registered(1)),
            committed(let_in(1), added(1)),
            committed(fenced(1), changed(led_by(None, 1))),
            committed(DELETED),
            committed(added(None)),
        ],
    ),
    (FencedIsSilent, [committed(let_in(1)), committed(fenced(1)), served(1, 1.5)]),
    (FencedIsSilent, [committed(fenced(1)), at(3), committed(let_in(1)), served(1, 2.5)]),
    (FencedIsSilent, [committed(fenced(1)), served(2, 2.5)]),
    (OneLeader, [committed(added(1)), served(1, 2.5), at(3), served(1, 2.7)]),
    (OneLeader, [*MOVED, served(1, 3), served(2, 3)]),
    (OneLeader, [*MOVED, at(4), served(2, 3), served(1, 3)]),
    (OneLeader, [committed(let_in(1)), *MOVED, served(2, 3), at(4), served(1, 3.5)]),
    (OneOwner, [committed(given("a")), committed(given("a", released=True), given("b"))]),
    (
        OneOwner,
        [committed(given("a")), committed(MemberLeft("g", 2, "a", 0)), committed(given("b"))],
    ),
    (
        OneOwner,
        [committed(given("a"), StaticMemberReplaced("g", "a", "b", 2)), committed(given("b"))],
    ),
    (OneOwner, [committed(given("a"), GroupDeleted("g")), committed(given("b"))]),
    (OneOwner, [committed(joined("a")), committed(given("a")), works("a"), works("a")]),
    (OneOwner, [committed(given("a")), committed(offset(5, "a")), committed(offset(5, ""))]),
    (CommitsStay, [committed(offset(5)), told_committed(5), found_committed(5, 5)]),
    (CommitsStay, [committed(offset(5)), committed(RESET), committed(offset(4))]),
    (CommitsStay, [committed(offset(5), TopicForgotten(TOPIC)), committed(offset(4))]),
    (CommitsStay, [committed(offset(5), GroupDeleted("g")), committed(offset(4))]),
    (CommittedIsEverywhere, [shows(shown(5, log(5), log(7)), IN_MEMORY)]),
    (CommittedIsEverywhere, [shows(shown(0, leader=None), shown(5, log(9, 5), leader=None))]),
    (CommittedIsEverywhere, [shows(shown(5, log(5, 5, (1, 5), log_start_offset=5)))]),
    (CommittedIsNotCut, [lambda checker: checker.cut(msgspec.structs.replace(CUTS, offset=6))]),
    (LossIsAccepted, [lambda checker: checker.lost(LOST)]),
    (JoinersHaveAll, [lambda checker: checker.asked(msgspec.structs.replace(ASKED, logs={}))]),
    (JoinersAreKnown, [lambda checker: checker.asked(ASKED), lambda it: it.joined(JOINED)]),
    (LogsMatch, [shows(shown(5, log(9), IN_TWO_EPOCHS, log(2)))]),
    (LogsMatch, [shows(shown(5, log(9, 9, (1, 0), (3, 4)), IN_TWO_EPOCHS))]),
    (LogsMatch, [shows(shown(5, CUT_AT_ITS_START, IN_TWO_EPOCHS))]),
    (LogsMatch, [shows(shown(5, log(9, 9, (1, 0), (2, 5), is_held=True), IN_TWO_EPOCHS))]),
    (LogsMatch, [shows(shown(5, log(9, 9, (1, 0), (2, 5), is_damaged=True), IN_TWO_EPOCHS))]),
    (HighWatermarkStays, [shows(shown(5), shown(5), shown(4, leader=(2, 2)))]),
    (HighWatermarkStays, [shows(shown(5), shown(4, leader=None))]),
    (ReplicaStays, [opened(log(5), None), opened(log(5), log(9, 5)), opened(log(4), log(4, 5))]),
    (ReplicaStays, [opened(log(0), log(5, 5, is_held=True))]),
    (TooFewIsSaid, [appended(1.0), shows(TOO_FEW), at(3.0), appended(1.9)]),
    (TooFewIsSaid, [shows(TOO_FEW, shown(5), shown(5, leader=None)), at(3.0), appended(2.5)]),
    (LatestRises, [told_end(5, 1.0), told_end(4, 2.0), at(3.0), told_end(5, 2.5)]),
    (LatestRises, [shows(LED_BY_2), known_end(5), at(3.0), told_end(4, 2.5)]),
]

BROKEN: list[tuple[type[NodeChecker], list[Story]]] = [
    (ElectionSafety, [elected(1, 1), elected(2, 1)]),
    (LeaderCompleteness, [elected(1, 1), applied(1, 4, 1), elected(2, 2, (3, 1), (4, 2))]),
    (LeaderCompleteness, [applied(1, 4, 1), applied(1, 5, 3), elected(2, 4, (4, 1))]),
    (LeaderCompleteness, [applied(1, 5, node_term=3), applied(2, 4), elected(2, 4, (4, 1))]),
    (StateMachineSafety, [applied(1, 1, 1, content=b"x"), applied(2, 1, 1, content=b"y")]),
    (StateMachineSafety, [applied(1, 1, 1, content=b"x"), applied(2, 1, 2, content=b"x")]),
    (StateMachineSafety, [applied(1, 1, 1, content=b"x"), restored(2, 1, 2)]),
    (AppliedInOrder, [began(1), applied(1, 2)]),
    (AppliedInOrder, [began(1), applied(1, 1), applied(1, 1)]),
    (AppliedInOrder, [began(1, 9), restored(1, 8)]),
    (TermNeverFalls, [spoke("a", 4), spoke("a", 3)]),
    (OneVote, [voted("a", 4, "b"), voted("a", 4, "a")]),
    (StatesAgree, [seen(b"x", b"y")]),
    (StatesAgree, [ended((9, b"x"), (9, b"y"))]),
    (StatesAgree, [ended((9, b"x"), (8, b"x"))]),
    (AnswersAreCommitted, [told_created("t")]),
    (AnswersAreCommitted, [committed(CREATED), told_created("u")]),
    (AnswersAreCommitted, [committed(CREATED), told_deleted("t", 2.5)]),
    (
        AnswersAreCommitted,
        [committed(CREATED), committed(DELETED), committed(CREATED), at(4), told_deleted("t", 3)],
    ),
    (AnswersAreCommitted, [committed(CREATED), told_altered("2", 1)]),
    (
        AnswersAreCommitted,
        [
            committed(CREATED),
            at(3),
            committed(TopicAltered(TOPIC, {"a": "2"})),
            told_altered("1", 4),
        ],
    ),
    (NamesAreUnique, [committed(CREATED), committed(TopicCreated("t", b"u" * 16, 1, {}))]),
    (NamesAreUnique, [committed(CREATED), committed(DELETED), committed(CREATED)]),
    (NamesAreUnique, [committed(CREATED), committed(DELETED), committed(DELETED)]),
    (LeadersAreAlive, [committed(registered(1)), committed(added(1))]),
    (LeadersAreAlive, [committed(let_in(1), added(1)), committed(fenced(1))]),
    (LeadersAreAlive, [committed(added(None)), committed(changed(led_by(None, 2)))]),
    (
        LeadersAreAlive,
        [committed(added(None)), committed(changed(led_by(None, 1, leader_epoch=-1)))],
    ),
    (
        LeadersAreAlive,
        [committed(let_in(1), added(None)), committed(changed(led_by(1, 1, leader_epoch=0)))],
    ),
    (
        LeadersAreAlive,
        [
            committed(let_in(1), let_in(2)),
            committed(added(1)),
            at(3),
            committed(changed(PartitionRegistration((1, 2), (2,), (), 1, 1, 1))),
        ],
    ),
    (FencedIsSilent, [committed(let_in(1)), committed(fenced(1)), served(1, 2.5)]),
    (FencedIsSilent, [committed(let_in(1)), committed(registered(1)), served(1, 2.5)]),
    (OneLeader, [committed(added(1)), served(2, 2.5)]),
    (
        OneLeader,
        [
            committed(added(1)),
            committed(changed(led_by(2, 1))),
            served(2, 3),
            at(4),
            served(1, 3.5),
        ],
    ),
    (
        OneLeader,
        [
            committed(let_in(1)),
            committed(added(1)),
            committed(changed(led_by(2, 1)), fenced(1)),
            served(2, 3),
            at(4),
            served(1, 3.5),
        ],
    ),
    (
        OneLeader,
        [
            committed(let_in(1)),
            committed(added(1)),
            committed(changed(led_by(2, 1))),
            served(2, 3),
            at(14),
            served(1, 13),
        ],
    ),
    (OneOwner, [committed(given("a")), committed(given("b"))]),
    (OneOwner, [committed(given("a", released=True))]),
    (OneOwner, [committed(given("a")), committed(given("b", released=True))]),
    (
        OneOwner,
        [committed(given("a")), committed(MemberLeft("h", 2, "a", 0)), committed(given("b"))],
    ),
    (OneOwner, [committed(given("a")), committed(offset(5, "b"))]),
    (OneOwner, [works("a")]),
    (OneOwner, [committed(joined("a")), committed(given("a")), works("b")]),
    (CommitsStay, [committed(offset(5)), committed(offset(4))]),
    (CommitsStay, [committed(offset(5)), told_committed(6)]),
    (CommitsStay, [committed(offset(5)), found_committed(4, 5)]),
    (CommittedIsEverywhere, [shows(shown(5, log(5), log(9, 4)))]),
    (CommittedIsEverywhere, [shows(msgspec.structs.replace(IN_MEMORY, high_watermark=6))]),
    (CommittedIsEverywhere, [shows(shown(5, log(4), leader=None))]),
    (
        CommittedIsEverywhere,
        [shows(msgspec.structs.replace(shown(5, log(5)), must_have_all=[1, 2]))],
    ),
    (CommittedIsEverywhere, [shows(shown(5, log(5), log(5, 5, (2, 0))))]),
    (CommittedIsEverywhere, [shows(shown(5, log(5), log(5, 5, (1, 0), (2, 4))))]),
    (LogsMatch, [shows(shown(5, log(9, 9, (1, 0), (2, 5)), IN_TWO_EPOCHS))]),
    (LogsMatch, [shows(shown(5, log(9, 9, (2, 6)), IN_TWO_EPOCHS))]),
    (LogsMatch, [shows(shown(5, log(9, 9, (1, 0), (3, 4), (2, 6))))]),
    (LogsMatch, [shows(shown(5, log(9), log(2), log(9, 9, (0, 0), (1, 1))))]),
    (CommittedIsNotCut, [lambda checker: checker.cut(CUTS)]),
    (LossIsAccepted, [lambda it: it.lost(msgspec.structs.replace(LOST, is_durable=True))]),
    (JoinersHaveAll, [lambda checker: checker.asked(ASKED)]),
    (JoinersAreKnown, [lambda checker: checker.joined(JOINED)]),
    (HighWatermarkStays, [shows(shown(5)), shows(shown(4))]),
    (ReplicaStays, [opened(log(4), log(9, 5))]),
    (TooFewIsSaid, [shows(TOO_FEW), at(3.0), shows(TOO_FEW), appended(2.5)]),
    (LatestRises, [told_end(5, 1.0), at(3.0), told_end(4, 2.5)]),
    (LatestRises, [known_end(5), at(3.0), told_end(4, 2.5)]),
]


def tell(checker: NodeChecker, stories: list[Story]) -> None:
    at(2.0)(checker)
    for story in stories:
        story(checker)


def name(value: object) -> str:
    return value.__name__ if isinstance(value, type) else ""


@pytest.mark.parametrize(("promise", "stories"), KEPT, ids=name)
def test_a_checker_accepts_a_valid_history(
    promise: type[NodeChecker], stories: list[Story]
) -> None:
    tell(promise(), stories)


@pytest.mark.parametrize(("promise", "stories"), BROKEN, ids=name)
def test_a_checker_objects_at_the_step_that_breaks_its_promise(
    promise: type[NodeChecker], stories: list[Story]
) -> None:
    checker = promise()
    tell(checker, stories[:-1])

    with pytest.raises(ViolationError, match=f"^{promise.__name__}: "):
        stories[-1](checker)


def test_every_checker_has_a_valid_and_an_invalid_history() -> None:
    promises = {
        promise
        for promise in NodeChecker.__subclasses__()
        if promise.__module__.endswith("_checkers")
    }

    assert {promise for promise, _ in BROKEN} == promises
    assert {promise for promise, _ in KEPT} == promises
