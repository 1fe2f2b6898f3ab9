"""Single nodes for the tests of the core."""

from random import Random

from tests.coordinator.raft.samples import (
    NOTHING,
    A,
    B,
    at,
    entries,
    snapshot,
)
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.core import RaftCore
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import (
    AppendReply,
    AppendRequest,
    Message,
    PreVoteReply,
    VoteReply,
)
from tidelog.coordinator.raft.ready import HardState, StoredState
from tidelog.coordinator.raft.role import Role

NEW = StoredState(HardState(), NOTHING)
CONFIG = RaftConfig(
    election_ticks=5, max_write_ticks=20, max_uncommitted_bytes=200, max_payload_bytes=100
)
ALONE = StoredState(HardState(), snapshot(0, 0, Membership.of_voters([A])))


def node(
    stored: StoredState = NEW,
    *,
    identity: Identity = A,
    is_damaged: bool = False,
) -> RaftCore:
    return RaftCore(identity, stored, CONFIG, random=Random(1), is_damaged=is_damaged)


def stored(term: int, *terms: int, voted_for: Identity | None = None) -> StoredState:
    return StoredState(HardState(term, voted_for), NOTHING, tuple(entries(*terms)))


def sync(core: RaftCore) -> list[Message]:
    """Complete all writes; return the messages that are sent meanwhile."""
    sent: list[Message] = []
    while not (ready := core.ready()).is_empty:
        sent += ready.messages
        if ready.write is not None:
            core.synced(ready.write)
    return sent


def pass_time(core: RaftCore, ticks: int) -> None:
    for _ in range(ticks):
        core.tick()


def leader(*, term: int = 1) -> RaftCore:
    """Return A as the leader of a term, with its first entry committed by B."""
    core = node(StoredState(HardState(term - 1), NOTHING))
    pass_time(core, 2 * CONFIG.election_ticks)
    core.step(PreVoteReply(B, A, term - 1, term - 1, is_granted=True))
    sync(core)
    core.step(VoteReply(B, A, term, is_granted=True))
    sync(core)
    core.step(AppendReply(B, A, term, 1, 1, 1, 0))
    sync(core)
    assert core.role is Role.LEADER
    assert core.commit_index == 1
    return core


def append(term: int, previous: tuple[int, int], *terms: int, commit: int = 0) -> AppendRequest:
    sent = tuple(entries(*terms, first=previous[0] + 1))
    return AppendRequest(B, A, term, at(*previous), commit, 1, 0, sent)
