"""Runner of scenarios: one partition of a queue, its workers, and its leaders.

A `#` in a scenario file begins a comment; a block of commands ends with `----`, and the lines below
it, up to an empty line, are the output of the commands. Times are in seconds from the beginning.

    queue fifo deliveries=3 timeout=30 acks=leader fenced priority_weights=2,1    a queue
    send a b@g c:0       messages, of a group, or with a priority; they are committed at once
    receive w1 2 for=10 attempt=x      worker `w1` receives messages
    delete w1 a          with the last receipt of `w1` for it; also: extend w1 a 20,
                         release w1 a [5], reject w1 a REASON, return w1 a
    wait 10              time passes
    hold / commit        decisions are not committed until / they are; replies wait for that
    leader dies          another leader takes over, with the committed journal
    snapshot             the next leader begins with it
    move [unanswered]    dead letters go to their queue; the reply to the mover is lost
    purge / seek N       at this offset
    show                 all messages of the queue, and the dead-letter queue
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, final

from tests import scenario_files
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.queue_layer.ordering.delivery_order import RecordFields
from tidelog.queue_layer.ordering.factory import order_for
from tidelog.queue_layer.outcome import Outcome, Reply
from tidelog.queue_layer.queue_partition import QueuePartition
from tidelog.queue_layer.receipts import Receipts
from tidelog.wire.config.queue_config import QueueConfig, ReceiveAcks
from tidelog.wire.messages.queue_journal import Target, decode, encode
from tidelog.wire.messages.queues import MessageState, SettleAction, Settlement

_TARGET: Final[Target] = (b"dead letters", 0)
_S: Final = 1000
_ALL: Final = 1000


@final
class QueueScenario:
    """The queue, its journal, its topic, and its dead-letter queue."""

    def __init__(self) -> None:
        self._config = QueueConfig()
        self._now_ms = _S
        self._names: list[str] = []
        self._fields: list[RecordFields] = []
        self._committed: list[bytes] = []
        self._staged: list[bytes] = []
        self._is_held = False
        self._waiting: list[tuple[str, Callable[[], None]]] = []
        """Workers that wait for the commit, with their replies."""
        self._receipts: dict[tuple[str, str], bytes] = {}
        self._dead: list[str] = []
        self._moved: tuple[int, int] = (0, 0)
        """Epoch of the producer that moves dead letters, and its next sequence there."""
        self._epoch = 0
        self._lines: list[str] = []
        self._core = self._new_core()

    def play(self, command: str) -> list[str]:
        """Execute one command; return its output."""
        self._lines = []
        name, *words = command.split()
        getattr(self, f"_do_{name}")(*words)
        return self._lines

    def _say(self, line: str) -> None:
        self._lines.append(line)

    # -- the queue, and its leaders ---------------------------------------------------------------

    def _do_queue(self, *words: str) -> None:
        options = _options(words)
        deliveries = options.get("deliveries")
        self._config = QueueConfig(
            is_fifo="fifo" in options,
            require_latest_receipt="fenced" in options,
            receive_acks=(
                ReceiveAcks.LEADER if options.get("acks") == "leader" else ReceiveAcks.ALL
            ),
            visibility_timeout_ms=int(options.get("timeout", "30")) * _S,
            max_receive_count=None if deliveries is None else int(deliveries),
            dead_letter_target=None if deliveries is None else _TARGET,
            priority_weights=tuple(
                int(priority)
                for priority in options.get("priority_weights", "").split(",")
                if priority
            ),
        )
        self._core = self._new_core()
        self._decide(self._core.seek(0, now_ms=self._now_ms))
        self._serve()

    def _new_core(self) -> QueuePartition:
        receipts = Receipts(queue_id=bytes(16), partition=0, key=bytes(16))
        return QueuePartition(self._config, receipts, order_for(self._config))

    def _serve(self) -> None:
        self._core.start(self._now_ms, leader_epoch=self._epoch)
        self._tell_records()

    def _tell_records(self) -> None:
        first, end = self._core.state.records_from, len(self._names)
        if first < end:
            self._core.state.on_records(first, end, self._fields[first:])

    def _decide(self, outcome: Outcome[Reply]) -> Reply:
        for frame in outcome.frames:
            data = encode(frame)
            self._staged.append(data)
            self._core.state.apply(decode(data))
        if not self._is_held:
            self._commit()
        return outcome.reply

    def _commit(self) -> None:
        self._committed += self._staged
        self._staged.clear()
        waiting, self._waiting = self._waiting, []
        for _, answer in waiting:
            answer()

    def _answer(self, actor: str, answer: Callable[[], None], *, is_lazy: bool = False) -> None:
        """Reply when the decision is committed."""
        if self._is_held and not is_lazy:
            self._say(f"{actor} waits")
            self._waiting.append((actor, answer))
        else:
            answer()

    def _do_hold(self) -> None:
        self._is_held = True

    def _do_commit(self) -> None:
        self._is_held = False
        self._commit()

    def _do_leader(self, fate: str) -> None:
        assert fate == "dies", "leaders die"
        for actor, _ in self._waiting:
            self._say(f"{actor} has no answer")
        self._waiting.clear()
        self._staged.clear()
        self._is_held = False
        self._epoch += 1
        self._core = self._new_core()
        for data in self._committed:
            self._core.state.apply(decode(data))
        self._serve()

    def _do_snapshot(self) -> None:
        frames = self._core.snapshot(now_ms=self._now_ms)
        self._committed = [encode(frame) for frame in frames]
        self._say(f"{len(frames)} frames")

    def _do_wait(self, seconds: str) -> None:
        self._now_ms += int(seconds) * _S
        self._core.state.advance(self._now_ms)
        while self._core.state.exhausted:
            self._decide(self._core.dead_letter_exhausted(now_ms=self._now_ms))

    # -- messages ---------------------------------------------------------------------------------

    def _do_send(self, *words: str) -> None:
        for word in words:
            rest, _, priority = word.partition(":")
            name, _, group = rest.partition("@")
            self._names.append(name)
            self._fields.append(
                RecordFields(priority=int(priority or 0), group=group.encode() or None)
            )
        self._tell_records()

    def _do_receive(self, actor: str, *words: str) -> None:
        options = _options(words)
        counts = [int(word) for word in words if "=" not in word]
        timeout, attempt = options.get("for"), options.get("attempt")
        command = ReceiveCommand(
            max_messages=counts[0] if counts else 1,
            visibility_timeout_ms=None if timeout is None else int(timeout) * _S,
            holder=actor,
            attempt_id=None if attempt is None else attempt.encode(),
        )
        plan = self._core.plan(command, now_ms=self._now_ms)
        taken = [(run.first_offset, run.count) for run in plan]
        outcome = self._core.receive(plan, taken, now_ms=self._now_ms)
        given = [
            (self._names[offset], run.receive_count)
            for run in outcome.reply.runs
            for offset in range(run.first_offset, run.first_offset + run.count)
        ]
        reply = self._decide(outcome)

        def answer() -> None:
            for name, count in given:
                self._receipts[actor, name] = reply.receipt
                self._say(f"{actor} gets {name}, delivery {count}, until {reply.deadline_ms // _S}")
            if not given:
                self._say(f"{actor} gets nothing")

        is_lazy = self._config.receive_acks is ReceiveAcks.LEADER
        self._answer(actor, answer, is_lazy=is_lazy or not given)

    def _do_delete(self, actor: str, *names: str) -> None:
        self._settle(actor, SettleAction.DELETE, *names)

    def _do_extend(self, actor: str, name: str, seconds: str) -> None:
        self._settle(actor, SettleAction.EXTEND, name, delay=seconds)

    def _do_release(self, actor: str, name: str, delay: str | None = None) -> None:
        self._settle(actor, SettleAction.RELEASE, name, delay=delay)

    def _do_reject(self, actor: str, name: str, *reason: str) -> None:
        self._settle(actor, SettleAction.REJECT, name, reason=" ".join(reason))

    def _do_return(self, actor: str, *names: str) -> None:
        self._settle(actor, SettleAction.RETURN, *names)

    def _settle(
        self,
        actor: str,
        action: SettleAction,
        *names: str,
        delay: str | None = None,
        reason: str = "",
    ) -> None:
        delay_ms = None if delay is None else int(delay) * _S
        for name in names:
            runs = [(self._names.index(name), 1)]
            receipt = self._receipts[actor, name]
            settlement = Settlement(0, receipt, runs, int(action), delay_ms, reason)
            settled = self._decide(self._core.settle(settlement, now_ms=self._now_ms))
            error = settled.error or (settled.refused[0].error if settled.refused else None)
            told = "done" if error is None else f"refused: {error.message}"
            self._answer(actor, partial(self._say, f"{actor}, {name}: {told}"))

    def _do_purge(self) -> None:
        count = self._decide(self._core.purge(self._core.state.records_from, now_ms=self._now_ms))
        self._say(f"{count} purged")

    def _do_seek(self, offset: str) -> None:
        self._decide(self._core.seek(int(offset), now_ms=self._now_ms))
        self._tell_records()

    # -- dead letters -----------------------------------------------------------------------------

    def _do_move(self, how: str = "") -> None:
        """Move one batch of dead letters, as the leader does."""
        batch = self._core.state.moves.next_batch(_TARGET)
        if batch is None:
            self._say("nothing is to be moved")
            return
        names = [
            self._names[offset]
            for first, count in batch.runs
            for offset in range(first, first + count)
        ]
        epoch, sequence = self._moved
        if epoch == batch.epoch and sequence > batch.sequence:
            self._say(f"there already: {' '.join(names)}")
        else:
            self._moved = (batch.epoch, batch.sequence + batch.count)
            self._dead += names
            self._say(f"moved: {' '.join(names)}")
        if how != "unanswered":
            self._decide(self._core.moved(batch, batch.count, now_ms=self._now_ms))

    def _do_show(self) -> None:
        seen, _ = self._core.peek((), 0, _ALL)
        for run in seen:
            for offset in range(run.first_offset, run.first_offset + run.count):
                state = MessageState(run.state).name.lower()
                by = f" by {run.holder}" if run.state == MessageState.IN_FLIGHT else ""
                until = f" until {run.visible_at_ms // _S}" if run.visible_at_ms else ""
                reason = f", {run.reason}" if run.reason else ""
                self._say(
                    f"{self._names[offset]} {state}{by}{until}, deliveries {run.receive_count}"
                    f"{reason}"
                )
        if not seen:
            self._say("nothing is here")
        if self._dead:
            self._say(f"dead-letter queue: {' '.join(self._dead)}")


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return options by name; one without a value has an empty one."""
    parts = [word.partition("=") for word in words]
    return {name: value for name, _, value in parts}


def perform(text: str) -> str:
    """Return a scenario with the current output of its commands."""
    return scenario_files.perform(text, QueueScenario().play)


if __name__ == "__main__":
    scenario_files.rewrite(Path(__file__).parent / "scenarios", perform)
