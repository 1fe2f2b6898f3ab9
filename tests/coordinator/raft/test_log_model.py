"""A property test of the log against a naive model: a list that keeps all entries.

A leader and a follower; the test is about the follower's log. The model has every entry since index
1 and answers each question by a scan of all of them.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.coordinator.raft.samples import NOTHING, THREE, entry
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.messages import Entry, EntryId, SnapshotMeta


@dataclass
class Model:
    """All entries, from index 1 on."""

    entries: list[Entry] = field(default_factory=list[Entry])
    durable: int = 0
    commit: int = 0
    delivered: int = 0
    base: int = 0

    def term_at(self, index: int) -> int | None:
        if index == 0:
            return 0
        return self.entries[index - 1].term if index <= len(self.entries) else None


class LogAgainstModel(RuleBasedStateMachine):
    """All actions of a leader and a disk on a log."""

    def __init__(self) -> None:
        super().__init__()
        self.log = RaftLog(NOTHING)
        self.model = Model()
        self.leader: list[Entry] = []
        self.term = 1
        self.write: tuple[EntryId, list[Entry]] | None = None

    @rule(cut=st.integers(0, 4))
    def another_leader_has_another_end(self, cut: int) -> None:
        """Entries committed on the follower are in every later leader's log."""
        self.term += 1
        kept = max(self.model.commit, len(self.leader) - cut)
        self.leader = self.leader[:kept]

    @rule(count=st.integers(1, 4))
    def the_leader_appends(self, count: int) -> None:
        for _ in range(count):
            self.leader.append(entry(len(self.leader) + 1, self.term))

    @rule(start=st.integers(0, 30), count=st.integers(0, 5))
    def the_leader_sends(self, start: int, count: int) -> None:
        previous_index = min(start, len(self.leader))
        sent = self.leader[previous_index : previous_index + count]
        term = self.leader[previous_index - 1].term if previous_index else 0

        end = self.log.accept(EntryId(previous_index, term), sent)

        model = self.model
        if previous_index >= model.base and model.term_at(previous_index) != term:
            assert end is None
            return
        assert end == max(previous_index + len(sent), model.base)
        for new in sent:
            if model.term_at(new.index) != new.term:
                model.entries = [*model.entries[: new.index - 1], new]
                model.durable = min(model.durable, new.index - 1)

    @precondition(lambda self: self.write is None)
    @rule()
    def a_write_begins(self) -> None:
        self.write = (self.log.last, list(self.model.entries))

    @precondition(lambda self: self.write is not None)
    @rule()
    def the_write_ends(self) -> None:
        assert self.write is not None
        last, written = self.write
        self.write = None

        self.log.synced(last, None)

        # The disk has the written entries; the log is durable if all of them are still in it.
        if written == self.model.entries[: len(written)]:
            self.model.durable = max(self.model.durable, len(written))

    @rule(index=st.integers(0, 30))
    def something_is_committed(self, index: int) -> None:
        agreed = 0
        for ours, theirs in zip(self.model.entries, self.leader, strict=False):
            if ours != theirs:
                break
            agreed += 1
        index = min(index, agreed)

        self.log.commit_to(index)

        self.model.commit = max(self.model.commit, index)

    @rule(max_bytes=st.integers(1, 200))
    def committed_entries_are_handed_out(self, max_bytes: int) -> None:
        taken = self.log.take_committed(max_bytes=max_bytes)

        model = self.model
        wanted = model.entries[model.delivered : min(model.commit, model.durable)]
        assert list(taken) == wanted[: len(taken)]
        assert bool(taken) == bool(wanted)
        model.delivered += len(taken)

    @rule(keep_entries=st.integers(0, 3))
    def the_log_is_compacted(self, keep_entries: int) -> None:
        model = self.model
        term = model.term_at(model.delivered)
        assert term is not None
        snapshot = SnapshotMeta(model.delivered, term, THREE)
        if snapshot.index > self.log.snapshot.index:
            model.base = max(model.base, model.delivered - keep_entries)

        self.log.compact(snapshot, keep_entries=keep_entries)

    @rule(index=st.integers(0, 30), term=st.integers(0, 10))
    def a_hint_is_the_last_that_may_agree(self, index: int, term: int) -> None:
        found = self.log.find_conflict_by_term(EntryId(index, term))

        model = self.model
        candidates = [
            known.entry_id
            for known in model.entries[model.base :]
            if known.index <= index and known.term <= term
        ]
        base_term = model.term_at(model.base)
        assert base_term is not None
        assert found == (candidates[-1] if candidates else EntryId(model.base, base_term))

    @invariant()
    def it_is_what_the_model_is(self) -> None:
        log, model = self.log, self.model
        assert log.last_index == len(model.entries)
        assert log.base.index == model.base
        assert (log.durable_index, log.commit_index) == (model.durable, model.commit)
        assert log.delivered_index == model.delivered
        expected = [model.term_at(index) for index in range(model.base, len(model.entries) + 1)]
        assert [log.term_at(index) for index in range(model.base, log.last_index + 1)] == expected
        size_bytes = sum(known.size_bytes for known in model.entries[model.commit :])
        assert log.uncommitted_bytes == size_bytes
        unsynced = model.entries[max(model.durable, model.base) :]
        assert log.unsynced_bytes == sum(known.size_bytes for known in unsynced)


LogAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLogAgainstModel = LogAgainstModel.TestCase
