"""The horizon, against a model of transactions whose ids and commits interleave at will."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.outbox.horizon import Horizon, Observation, Writer

ONE, TWO = Writer("3/1", 101), Writer("4/1", 102)


def observed(last_id: int, *writers: Writer) -> Observation:
    return Observation(last_id, frozenset(writers))


def test_without_writers_all_rows_are_settled() -> None:
    assert Horizon(0).observe(observed(7), 0.0) == 7


def test_a_late_commit_of_a_lower_id_is_waited_for() -> None:
    horizon = Horizon(0)
    assert horizon.observe(observed(2, ONE), 0.0) == 0  # ONE may have id 1 or 2.
    assert horizon.observe(observed(5, ONE), 0.0) == 0
    assert horizon.observe(observed(5), 0.0) == 5


def test_a_writer_that_began_later_holds_back_only_later_rows() -> None:
    horizon = Horizon(0)
    horizon.observe(observed(5), 0.0)

    assert horizon.observe(observed(9, TWO), 0.0) == 5
    assert horizon.observe(observed(12, ONE, TWO), 0.0) == 5
    assert horizon.observe(observed(12, ONE), 0.0) == 9  # ONE was not there at 9.


def test_a_prepared_transaction_is_as_early_as_the_writer_that_it_was() -> None:
    horizon = Horizon(0)
    horizon.observe(observed(1, ONE), 0.0)
    assert horizon.observe(observed(5, Writer("-1/740", None)), 0.0) == 0
    assert horizon.observe(observed(5), 0.0) == 5


def test_writers_without_a_pause_do_not_stop_the_relay() -> None:
    horizon = Horizon(0)
    for number in range(1, 50):
        settled_id = horizon.observe(observed(number, Writer(f"3/{number}", 101)), 0.0)
        assert settled_id == number - 1


def test_the_writer_that_holds_rows_back_for_longest_is_named() -> None:
    horizon = Horizon(0)
    horizon.observe(observed(5, ONE), 0.0)
    horizon.observe(observed(9, ONE, TWO), 3.0)

    assert horizon.holding_back(9.0, longer_than_s=10.0) is None
    assert horizon.holding_back(10.0, longer_than_s=10.0) == ONE
    horizon.observe(observed(9, TWO), 11.0)
    assert horizon.holding_back(12.0, longer_than_s=10.0) is None
    assert horizon.holding_back(13.0, longer_than_s=10.0) == TWO


def test_a_writer_that_holds_no_row_back_is_not_named() -> None:
    horizon = Horizon(5)
    horizon.observe(observed(5, ONE), 0.0)  # It has not inserted a row, or not yet.

    assert horizon.holding_back(60.0, longer_than_s=10.0) is None


class TransactionsModel(RuleBasedStateMachine):
    """Transactions lock the table, draw ids, and commit or roll back; the relay looks in steps."""

    @initialize()
    def start(self) -> None:
        self.next_writer = 0
        self.last_id = 0
        self.open: dict[Writer, list[int]] = {}
        self.visible: set[int] = set()
        self.horizon = Horizon(0)
        self.read_id: int | None = None
        self.relayed: list[int] = []
        self.settled_id = 0

    @rule()
    def lock(self) -> None:
        self.next_writer += 1
        self.open[Writer(f"3/{self.next_writer}", 100)] = []

    @precondition(lambda self: any(writer.pid for writer in self.open))
    @rule(data=st.data())
    def draw_id(self, data: st.DataObject) -> None:
        writer = data.draw(st.sampled_from(sorted(each for each in self.open if each.pid)))
        self.last_id += 1
        self.open[writer].append(self.last_id)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_committed=st.booleans())
    def end(self, data: st.DataObject, is_committed: bool) -> None:
        writer = data.draw(st.sampled_from(sorted(self.open, key=str)))
        ids = self.open.pop(writer)
        if is_committed:
            self.visible.update(ids)

    @precondition(lambda self: any(writer.pid for writer in self.open))
    @rule(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        """The locks go to a prepared transaction, which has another name and draws no more ids."""
        writer = data.draw(st.sampled_from(sorted(each for each in self.open if each.pid)))
        self.next_writer += 1
        self.open[Writer(f"-1/{self.next_writer}", None)] = self.open.pop(writer)

    @precondition(lambda self: any(writer.pid for writer in self.open))
    @rule(data=st.data())
    def roll_back_to_a_savepoint(self, data: st.DataObject) -> None:
        """The lock was taken after the savepoint, so it ends; the transaction goes on."""
        writer = data.draw(st.sampled_from(sorted(each for each in self.open if each.pid)))
        del self.open[writer]
        self.open[writer] = []

    @rule()
    def read_last_id(self) -> None:
        self.read_id = self.last_id

    @precondition(lambda self: self.read_id is not None)
    @rule()
    def read_writers(self) -> None:
        assert self.read_id is not None
        self.settled_id = self.horizon.observe(Observation(self.read_id, frozenset(self.open)), 0.0)
        self.read_id = None

    @rule()
    def read_rows(self) -> None:
        after_id = self.relayed[-1] if self.relayed else 0
        self.relayed += sorted(
            row_id for row_id in self.visible if after_id < row_id <= self.settled_id
        )

    @invariant()
    def no_row_appears_below_what_was_relayed(self) -> None:
        if self.relayed:
            below = {row_id for row_id in self.visible if row_id <= self.relayed[-1]}
            assert below == set(self.relayed)

    @invariant()
    def rows_are_settled_when_no_transaction_is_open(self) -> None:
        assert self.settled_id <= self.last_id

    def teardown(self) -> None:
        self.open.clear()
        self.read_last_id()
        self.read_writers()
        self.read_rows()
        assert self.relayed == sorted(self.visible)


TestTransactions = TransactionsModel.TestCase
