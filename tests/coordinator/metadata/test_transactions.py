"""Transactions against a model that keeps all history and recomputes the rest each time."""

import random
from dataclasses import dataclass, field

import pytest

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tidelog.coordinator.metadata.commands import (
    AbortTransaction,
    BeginTransaction,
    Command,
    CommitTransaction,
    ExpireTransactions,
    FinishedPart,
    FinishParts,
    ForgetTransactionNames,
    TransactionAnswer,
)
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.coordinator.metadata.transaction_commands import REMEMBERED_MS, UNUSED_MS_MIN
from tidelog.coordinator.metadata.transactions import AppendedPart
from tidelog.wire.errors import BrokerError, StaleTransactionError, TransactionGoneError
from tidelog.wire.messages.transactions import StagedPart, StagedPiece, TransactionStatus

TIMEOUT_MS = 60_000


@dataclass
class Batch:
    """A transaction of a name in the model."""

    transaction_id: int
    number: int
    deadline_ms: int
    parts: list[StagedPart] | None = None
    """The committed parts."""


@dataclass
class Model:
    """The whole history."""

    open: dict[str, Batch] = field(default_factory=dict[str, Batch])
    committed: dict[str, list[Batch]] = field(default_factory=dict[str, list[Batch]])
    used_ms: dict[str, int] = field(default_factory=dict[str, int])
    commits: list[Batch] = field(default_factory=list[Batch])
    done: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Commit and partition."""
    begun_count: int = 0

    def undone(self, commit: int) -> list[StagedPart]:
        parts = self.commits[commit - 1].parts or []
        return [part for part in parts if (commit, part.partition) not in self.done]

    def last(self, name: str) -> Batch | None:
        return self.committed.get(name, [None])[-1]

    def is_stale(self, name: str, transaction_id: int) -> bool:
        known = [self.last(name), self.open.get(name)]
        return any(each is not None and transaction_id < each.transaction_id for each in known)

    def begin(self, name: str, transaction_id: int, now_ms: int) -> int:
        """Return the expected number, 0 if the transaction is committed already."""
        last, opened = self.last(name), self.open.get(name)
        if last is not None and last.transaction_id == transaction_id:
            return 0
        if self.is_stale(name, transaction_id):
            raise StaleTransactionError("")
        if opened is None or opened.transaction_id != transaction_id:
            self.begun_count += 1
            self.open[name] = Batch(transaction_id, self.begun_count, now_ms + TIMEOUT_MS)
            self.used_ms[name] = now_ms
        elif now_ms + TIMEOUT_MS - opened.deadline_ms >= TIMEOUT_MS // 8:
            opened.deadline_ms = now_ms + TIMEOUT_MS
        return self.open[name].number

    def commit(
        self, name: str, transaction_id: int, number: int, *, parts: list[StagedPart], now_ms: int
    ) -> None:
        last, opened = self.last(name), self.open.get(name)
        if last is not None and last.transaction_id == transaction_id:
            return
        if self.is_stale(name, transaction_id):
            raise StaleTransactionError("")
        if opened is None or (opened.transaction_id, opened.number) != (transaction_id, number):
            raise TransactionGoneError("")
        del self.open[name]
        opened.parts = parts
        self.committed.setdefault(name, []).append(opened)
        self.commits.append(opened)
        self.used_ms[name] = now_ms

    def forget(self, name: str, now_ms: int) -> None:
        last = self.last(name)
        is_done = last is None or not self.undone(self.commits.index(last) + 1)
        if (
            name not in self.open
            and is_done
            and self.used_ms.get(name, 0) + UNUSED_MS_MIN <= now_ms
        ):
            self.committed.pop(name, None)

    def expire(self, now_ms: int) -> None:
        were_open = set(self.open)
        for name, opened in list(self.open.items()):
            if opened.deadline_ms <= now_ms:
                del self.open[name]
        for name, used_ms in list(self.used_ms.items()):
            last = self.last(name)
            is_done = last is None or not self.undone(self.commits.index(last) + 1)
            if name not in were_open and is_done and used_ms + REMEMBERED_MS <= now_ms:
                self.committed.pop(name, None)


def check(machine: MetadataStateMachine, model: Model, topic_id: bytes) -> None:
    """Check that machine and model agree on everything."""
    transactions = machine.state.transactions
    assert set(transactions.open_numbers) == {each.number for each in model.open.values()}
    for partition in range(3):
        expected = {
            commit: part.pieces
            for commit in range(1, len(model.commits) + 1)
            for part in model.undone(commit)
            if part.partition == partition
        }
        found = transactions.parts_of((topic_id, partition))
        assert dict(found) == expected
        assert list(found) == sorted(expected), "commits are appended in their order"
    needed = {each.number for each in model.open.values()} | {
        each.number for at, each in enumerate(model.commits, 1) if model.undone(at)
    }
    assert transactions.needed_numbers() == needed
    for name, known in transactions.names.items():
        last = model.last(name)
        assert known.last_transaction_id == (None if last is None else last.transaction_id)
        if last is not None:
            is_done = not model.undone(model.commits.index(last) + 1)
            assert (transactions.status_of_last(known) is TransactionStatus.COMPLETE) == is_done


def ask(machine: MetadataStateMachine, command: Command, now_ms: int) -> TransactionAnswer | None:
    outcome = machine.handle(command, now_ms=now_ms)
    for record in outcome.records:
        machine.apply(record)
    return outcome.reply if isinstance(outcome.reply, TransactionAnswer) else None


@pytest.mark.parametrize("seed", range(20))
def test_random_commands_agree_with_the_transaction_model(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(1)
    topic_id = cluster.create("orders", [1], [1], [1])
    machine, model, now_ms = cluster.machine, Model(), NOW_MS
    ask(machine, BeginTransaction("first", 0, TIMEOUT_MS, ["orders"], [b"s" * 16]), now_ms)
    model.begin("first", 0, now_ms)
    for _ in range(200):
        now_ms += rng.choice([0, 1, 1000, TIMEOUT_MS // 8, TIMEOUT_MS])
        now_ms += REMEMBERED_MS if rng.random() < 0.02 else 0
        name, transaction_id = rng.choice(["q1", "q2", "first"]), rng.randrange(8)
        failures: list[type[BrokerError] | None] = []
        parts = [
            StagedPart(topic_id, each, [StagedPiece(rng.randint(1, 9), 0, 10, 10)])
            for each in range(3)
            if rng.random() < 0.5
        ]
        opened = model.open.get(name)
        number = opened.number if opened and rng.random() < 0.8 else rng.randint(1, 9)
        kind = rng.choice(["begin", "commit", "commit", "abort", "expire", "finish", "forget"])
        epoch = machine.state.partitions(topic_id)[0].leader_epoch
        finished = AppendedPart(rng.randint(1, len(model.commits) + 1), topic_id, rng.randrange(3))
        for side in (machine, model):
            try:
                if isinstance(side, Model):
                    _tell(
                        side, kind, (name, transaction_id, number, parts, finished), now_ms=now_ms
                    )
                else:
                    commands: dict[str, Command] = {
                        "begin": BeginTransaction(name, transaction_id, TIMEOUT_MS, [], []),
                        "commit": CommitTransaction(name, transaction_id, number, parts),
                        "abort": AbortTransaction(name, transaction_id, number),
                        "expire": ExpireTransactions(),
                        "finish": FinishParts(1, [FinishedPart(finished, epoch)]),
                        "forget": ForgetTransactionNames([name], UNUSED_MS_MIN),
                    }
                    ask(side, commands[kind], now_ms)
                failures.append(None)
            except BrokerError as error:
                failures.append(type(error))
        assert failures[0] == failures[1], f"{kind} of {name} {transaction_id}"
        machine = MetadataStateMachine.from_snapshot(machine.snapshot())
        check(machine, model, topic_id)


def _tell(
    model: Model,
    kind: str,
    words: tuple[str, int, int, list[StagedPart], AppendedPart],
    *,
    now_ms: int,
) -> None:
    name, transaction_id, number, parts, finished = words
    opened = model.open.get(name)
    if kind == "begin":
        model.begin(name, transaction_id, now_ms)
    elif kind == "commit":
        model.commit(name, transaction_id, number, parts=parts, now_ms=now_ms)
    elif (
        kind == "abort"
        and opened
        and (opened.transaction_id, opened.number) == (transaction_id, number)
    ):
        del model.open[name]
    elif kind == "expire":
        model.expire(now_ms)
    elif kind == "forget":
        model.forget(name, now_ms)
    elif kind == "finish" and finished.commit_number <= len(model.commits):
        model.done.add((finished.commit_number, finished.partition))
