"""Writer of transactions, and the ledger of the contents that must exist at the end.

The writer stages transactions with several tasks and repeats some of that. It abandons, aborts or
delays some of them until they expire. It retries a commit until it knows the outcome, sometimes
with other tasks than before. At the end each committed transaction exists once: the records of one
commit, in its order, in every partition; and no other records exist.
"""

# Reads private state of the client.
# pyright: reportPrivateUsage=false

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple, final

import trio

from tests.simulation.checkers.run_history import ViolationError
from tidelog.client.client import Client
from tidelog.client.transactions.transaction import TaskResult, Transaction
from tidelog.wire.batch.record_batch import COLUMNAR_COUNT_MIN
from tidelog.wire.errors import StagedRecordsLostError, TidelogError, TransactionGoneError

_PATIENCE_S: Final = 15.0
_BACKOFF_S: Final = 0.2
_IS_COMMITTED: Final = 0.85
_IS_LEFT: Final = 0.3
"""Fraction of the uncommitted transactions that are left open instead of aborted."""
_RESTAGES: Final = 0.3
_TIMEOUTS_S: Final = (1.0, 2.0, 3600.0, 3600.0)
_DAWDLES: Final = 0.2
_DAWDLES_S: Final = 4.0

Contents = dict[int, list[bytes]]
"""Values by partition, in order."""


class Staged(NamedTuple):
    """One task that has staged its records."""

    result: TaskResult
    contents: Contents


@final
class Ledger:
    """The requested transactions and their known outcomes."""

    def __init__(self) -> None:
        """Start without transactions."""
        self.asked: dict[bytes, list[Contents]] = {}
        """By transaction (name and id), the contents that each commit request named."""
        self.committed: dict[bytes, None] = {}
        self.dropped: dict[bytes, None] = {}
        """Transactions whose abort or expiry was reported."""
        self.gone_count = 0
        """Number of commits refused because the transaction was not open any more."""

    def asking(self, key: bytes, tasks: list[Staged]) -> None:
        """Record the contents of a commit request."""
        if not any(task.result.number for task in tasks):
            return  # An earlier commit has taken effect; these tasks have staged nothing.
        contents: Contents = {}
        for task in tasks:
            for partition, values in task.contents.items() if task.result.number else ():
                contents.setdefault(partition, []).extend(values)
        asked = self.asked.setdefault(key, [])
        if contents not in asked:
            asked.append(contents)

    def check(self, found: Contents) -> None:
        """Compare the ledger with the final contents.

        Raises:
            ViolationError: A transaction is lost, repeated, partial or unrequested.
        """
        for problem in self._problems(found):
            raise ViolationError("TransactionsOnce", problem)

    def _problems(self, found: Contents) -> Iterator[str]:
        seen: dict[bytes, Contents] = {}
        for partition, values in found.items():
            transactions = [value.rsplit(b":", 1)[0] for value in values]
            for transaction, value in zip(transactions, values, strict=True):
                seen.setdefault(transaction, {}).setdefault(partition, []).append(value)
            begins = [
                each
                for at, each in enumerate(transactions)
                if at == 0 or transactions[at - 1] != each
            ]
            if len(begins) > len(set(begins)):
                yield f"transactions are interleaved in partition {partition}: {begins}"
        for transaction in self.committed:
            if transaction not in seen and all(
                any(each.values()) for each in self.asked[transaction]
            ):
                yield f"{transaction!r} is lost"
        for transaction, contents in seen.items():
            problem = self._problem_of(transaction, contents)
            if problem:
                yield f"{transaction!r} {problem}"

    def _problem_of(self, transaction: bytes, contents: Contents) -> str:
        """Return the error in these contents of a transaction; empty if they are valid."""
        if transaction in self.dropped:
            return "was dropped, but exists"
        if transaction not in self.committed:
            return "was never committed, but exists"
        if contents not in self.asked[transaction]:
            return f"matches no commit: {contents}"
        return ""


@final
class TransactionWriter:
    """Writes one transaction after the other; after a restart it resumes with the last one."""

    def __init__(
        self, name: str, random: Random, ledger: Ledger, *, topic: str, partition_count: int
    ) -> None:
        """Write into an existing topic."""
        self.should_stop = False
        self.count = 0
        self._name = name
        self._random = random
        self._ledger = ledger
        self._topic = topic
        self._partition_count = partition_count
        self._drawn = 0

    async def run(self, client: Client, *, pause_s: float = 0.0) -> None:
        """Write until told to stop; pause for so long between two transactions, on average.

        The last transaction is committed, so that none stays open for an hour.
        """
        while not self.should_stop:
            await self._write(client)
            if pause_s:
                await trio.sleep(min(self._random.expovariate(1 / pause_s), _PATIENCE_S / 4))
        await self._write(client, is_last=True)

    async def _write(self, client: Client, *, is_last: bool = False) -> None:
        """Write one transaction and retry until its outcome is known."""
        timeout_s = self._random.choice(_TIMEOUTS_S)
        transaction = client.transaction(self._name, self.count, timeout=timeout_s)
        await self._end(transaction, is_wanted=is_last or self._random.random() < _IS_COMMITTED)
        self.count += 1

    async def _end(self, transaction: Transaction, *, is_wanted: bool) -> None:
        key = f"{self._name}/{transaction.transaction_id}".encode()
        tasks: list[Staged] = []
        is_left = self._random.random() < _IS_LEFT
        while True:
            with trio.move_on_after(self._random.uniform(0.05, _PATIENCE_S)):
                try:
                    if not tasks:
                        tasks = await self._stage(transaction, key)
                    if is_wanted or key in self._ledger.asked:
                        await self._commit(transaction, key, tasks)
                    elif not is_left:
                        await self._abort(transaction, key)
                except TransactionGoneError:
                    self._ledger.gone_count += 1
                    tasks = []
                except StagedRecordsLostError as lost:
                    raise ViolationError(
                        "TransactionsOnce", f"{key!r} is committed, and lost"
                    ) from lost
                except TidelogError:
                    await trio.sleep(_BACKOFF_S)
                else:
                    return
            if self._random.random() < _RESTAGES:
                tasks = []  # Like after a crash of the committing process.

    async def _commit(self, transaction: Transaction, key: bytes, tasks: list[Staged]) -> None:
        if self._random.random() < _DAWDLES:
            await trio.sleep(self._random.uniform(0, _DAWDLES_S))
        self._ledger.asking(key, tasks)
        await transaction.commit([task.result for task in tasks])
        self._ledger.committed[key] = None

    async def _abort(self, transaction: Transaction, key: bytes) -> None:
        if await transaction.abort():
            raise ViolationError(
                "TransactionsOnce", f"{key!r} is committed, but no commit was requested"
            )
        self._ledger.dropped[key] = None

    async def _stage(self, transaction: Transaction, key: bytes) -> list[Staged]:
        """Stage with some tasks, some of which fail; return the successful tasks in any order."""
        staged: list[Staged] = []
        for _ in range(self._random.randint(1, 4)):
            contents: Contents = {}
            async with transaction.task() as task:
                if task._producer is not None:  # Every other task stages short batches in format 2.
                    rules = task._producer._accumulator._rules
                    rules.columnar_from = COLUMNAR_COUNT_MIN if len(staged) % 2 else 1
                for _ in range(self._random.randint(0, 3)):
                    values = [self._value(key) for _ in range(self._random.randint(1, 4))]
                    partition = self._random.randrange(self._partition_count)
                    await task.send_many(self._topic, values, partition=partition)
                    contents.setdefault(partition, []).extend(values)
            staged.append(Staged(task.result, contents))
        self._random.shuffle(staged)
        return staged[: self._random.randint(1, len(staged))]

    def _value(self, key: bytes) -> bytes:
        self._drawn += 1
        return b"%s:%d" % (key, self._drawn)
