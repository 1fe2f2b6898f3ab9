"""A player of scenarios: a few nodes, and a script of commands with their expected output.

A scenario file is a sequence of steps. A `#` begins a comment; a block of commands ends with
`----`, and the lines below it, up to an empty line, are the expected output.

    nodes 1 2 3          voters of a new cluster; `spares 4 5` run and are no members
    one_entry            messages carry one entry each; comes before `nodes`
    timeout 1            let time pass for a node until it campaigns
    tick 1 2 times 5     let time pass for nodes
    settle               sync and deliver until there is nothing left; `round` does it once
    deliver [1>2] [N]    deliver messages (of one direction, N of them), and print them
    lose [1>2]           lose the messages that are under way
    cut 1 2              partition these nodes from the others; `heal` ends it
    hold 1 / sync 1      syncs of this disk do not return / they do
    crash 1 / start 1    all unsynced state is lost
    wipe 1               start with another, empty disk; `damage 1`: report the disk as damaged
    propose 1 x          append a command; also: read 1, add 1 4, promote 1 4, remove 1 4,
                         transfer 1 2, snapshot 1 [KEEP]
    show                 the state of all nodes
"""

# A scenario shows the log of a core.
# pyright: reportPrivateUsage=false

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import final

from tests import scenario_files
from tests.simulation.raft.disk import RaftDisk
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.core import RaftCore
from tidelog.coordinator.raft.errors import ProposalRefusedError
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import (
    AppendRefusal,
    AppendReply,
    AppendRequest,
    EntryKind,
    Message,
    PreVoteReply,
    PreVoteRequest,
    SnapshotMeta,
    SnapshotRequest,
    VoteReply,
    VoteRequest,
)
from tidelog.coordinator.raft.ready import AddLearner, MembershipChange, Promote, Remove, Write
from tidelog.coordinator.raft.role import Role

CONFIG = RaftConfig(election_ticks=5, max_promotion_lag_entries=2)


@final
class Actor:
    """One node of a scenario."""

    def __init__(
        self,
        node_id: int,
        membership: Membership,
        config: RaftConfig,
        *,
        say: Callable[[str], None],
    ) -> None:
        self.node_id = node_id
        self._config = config
        self.disk_count = 1
        self.disk = RaftDisk(membership)
        self.core: RaftCore | None = None
        self.write: Write | None = None
        self.is_held = False
        self.applied: list[str] = []
        self._say = say

    @property
    def identity(self) -> Identity:
        return identity(self.node_id, self.disk_count)

    def start(self, *, is_damaged: bool = False) -> None:
        self.write = None
        dice = Random(self.node_id)
        stored = self.disk.stored()
        self.core = RaftCore(
            self.identity, stored, self._config, random=dice, is_damaged=is_damaged
        )

    def pump(self) -> list[Message]:
        """Execute the core's `Ready`, except the sync; return the messages to send."""
        sent: list[Message] = []
        while self.core is not None and not (ready := self.core.ready()).is_empty:
            sent += ready.messages
            self.write = ready.write or self.write
            if ready.snapshot is not None:
                self._say(f"{self.node_id} restores snapshot {ready.snapshot.index}")
            for entry in ready.committed:
                if entry.kind is EntryKind.COMMAND:
                    self.applied.append(entry.payload.decode())
                    self._say(f"{self.node_id} applies {entry.payload.decode()}")
            for read in ready.reads:
                self._say(f"{self.node_id} may serve the read at {read.index}")
        return sent

    def sync(self) -> bool:
        """Complete the write; return whether there was one."""
        write, self.write = self.write, None
        if write is None or self.core is None:
            return False
        self.disk.carry_out(write)
        self.core.synced(write)
        return True


def identity(node_id: int, disk_count: int = 1) -> Identity:
    """Return the identity of a node with its first, second, ... disk."""
    return Identity(node_id, b"disk %d" % disk_count)


@final
class RaftScenario:
    """All nodes, and the messages that are under way."""

    def __init__(self) -> None:
        self.actors: dict[int, Actor] = {}
        self.under_way: list[Message] = []
        self._config = CONFIG
        self._sides: set[int] = set()
        self._lines: list[str] = []
        self._leaders: set[tuple[int, int]] = set()

    def play(self, command: str) -> list[str]:
        """Run one command; return its output."""
        self._lines = []
        name, *words = command.split()
        try:
            getattr(self, f"_do_{name}")(*words)
        except ProposalRefusedError as error:
            self._say(f"refused: {error}")
        self._pump()
        return self._lines

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _core(self, word: str) -> RaftCore:
        core = self.actors[int(word)].core
        assert core is not None, f"{word} is off"
        return core

    def _pump(self) -> None:
        for actor in self.actors.values():
            for message in actor.pump():
                if not self._is_cut(message):
                    self.under_way.append(message)
            core = actor.core
            if core is not None and core.role is Role.LEADER:
                found = (actor.node_id, core.term)
                if found not in self._leaders:
                    self._leaders.add(found)
                    self._say(f"{actor.node_id} leads in term {core.term}")

    def _is_cut(self, message: Message) -> bool:
        ends = {message.sender.node_id in self._sides, message.target.node_id in self._sides}
        return len(ends) > 1

    # Nodes.

    def _do_nodes(self, *words: str) -> None:
        membership = Membership.of_voters(identity(int(word)) for word in words)
        self._place(words, membership)

    def _do_spares(self, *words: str) -> None:
        self._place(words, Membership())

    def _place(self, words: tuple[str, ...], membership: Membership) -> None:
        for word in words:
            self.actors[int(word)] = Actor(int(word), membership, self._config, say=self._say)
            self.actors[int(word)].start()

    def _do_one_entry(self) -> None:
        self._config = replace(CONFIG, max_append_entries=1)

    def _do_crash(self, word: str) -> None:
        self.actors[int(word)].core = None

    def _do_start(self, word: str) -> None:
        self.actors[int(word)].start()

    def _do_wipe(self, word: str) -> None:
        actor = self.actors[int(word)]
        actor.disk_count += 1
        actor.disk = RaftDisk(Membership())
        actor.start()

    def _do_damage(self, word: str) -> None:
        self.actors[int(word)].disk = RaftDisk(Membership())
        self.actors[int(word)].start(is_damaged=True)

    # Time, network and disks.

    def _do_tick(self, *words: str) -> None:
        times = int(words[-1]) if "times" in words else 1
        names = words[: words.index("times")] if "times" in words else words
        for _ in range(times):
            for name in names:
                self._core(name).tick()
                self._pump()

    def _do_timeout(self, word: str) -> None:
        core = self._core(word)
        role = core.role
        for _ in range(2 * CONFIG.election_ticks):
            core.tick()
            if core.role is not role:
                return
        self._say(f"{word} does not campaign")

    def _do_settle(self) -> None:
        while self._do_round():
            pass

    def _do_round(self) -> bool:
        self._pump()
        synced = [actor.sync() for actor in self.actors.values() if not actor.is_held]
        self._pump()
        messages, self.under_way = self.under_way, []
        for message in messages:
            self._hand_over(message)
            self._pump()
        return any(synced) or bool(messages)

    def _do_deliver(self, *words: str) -> None:
        arrow = next((word for word in words if ">" in word), None)
        count = int(words[-1]) if words and ">" not in words[-1] else len(self.under_way)
        for message in self._select(arrow)[:count]:
            self.under_way.remove(message)
            self._say(describe(message))
            self._hand_over(message)

    def _do_lose(self, arrow: str | None = None) -> None:
        for message in self._select(arrow):
            self.under_way.remove(message)

    def _select(self, arrow: str | None) -> list[Message]:
        return [message for message in self.under_way if arrow in {None, _arrow(message)}]

    def _hand_over(self, message: Message) -> None:
        core = self.actors[message.target.node_id].core
        if core is not None and not self._is_cut(message):
            core.step(message)

    def _do_cut(self, *words: str) -> None:
        self._sides = {int(word) for word in words}
        self.under_way = [message for message in self.under_way if not self._is_cut(message)]

    def _do_heal(self) -> None:
        self._sides = set()

    def _do_hold(self, word: str) -> None:
        self.actors[int(word)].is_held = True

    def _do_sync(self, word: str) -> None:
        self.actors[int(word)].is_held = False
        self.actors[int(word)].sync()

    # Clients and operators.

    def _do_propose(self, word: str, *texts: str) -> None:
        for text in texts:
            self._core(word).propose(text.encode())

    def _do_read(self, word: str) -> None:
        self._core(word).read(0)

    def _do_add(self, word: str, node: str) -> None:
        self._change(word, AddLearner(self.actors[int(node)].identity))

    def _do_promote(self, word: str, node: str) -> None:
        self._change(word, Promote(int(node)))

    def _do_remove(self, word: str, node: str) -> None:
        self._change(word, Remove(int(node)))

    def _change(self, word: str, change: MembershipChange) -> None:
        self._core(word).change_membership(change)

    def _do_transfer(self, word: str, node: str) -> None:
        self._core(word).transfer_leadership(int(node))

    def _do_snapshot(self, word: str, keep: str = "0") -> None:
        actor, core = self.actors[int(word)], self._core(word)
        snapshot = core.snapshot_meta(core._log.delivered_index)
        actor.disk.compact(snapshot, int(keep))
        core.compact(snapshot, keep_entries=int(keep))

    def _do_show(self) -> None:
        for actor in self.actors.values():
            self._say(_show(actor))


def _show(actor: Actor) -> str:
    core = actor.core
    if core is None:
        return f"{actor.node_id} is off"
    log = core._log
    terms = [str(log.term_at(index)) for index in range(log.base.index + 1, log.last_index + 1)]
    before = f"({log.base.index} of term {log.base.term}) " if log.base.index else ""
    role = "damaged" if core.is_damaged else core.role.value
    return (
        f"{actor.node_id} {role}, term {core.term}, log {before}{' '.join(terms) or '-'},"
        f" committed {core.commit_index}"
    )


def _arrow(message: Message) -> str:
    return f"{message.sender.node_id}>{message.target.node_id}"


def describe(message: Message) -> str:
    """Return a message as readable text."""
    return f"{_arrow(message)} term {message.term}: {_content(message)}"


def _content(message: Message) -> str:
    text = "campaign now"
    match message:
        case PreVoteRequest(last=last):
            text = f"pre-vote request, log ends with {last.index}.{last.term}"
        case VoteRequest(last=last):
            text = f"vote request, log ends with {last.index}.{last.term}"
        case PreVoteReply(is_granted=is_granted) | VoteReply(is_granted=is_granted):
            text = "yes" if is_granted else "no"
        case AppendRequest(previous=previous, entries=entries):
            names = " ".join(f"{entry.index}.{entry.term}" for entry in entries) or "nothing"
            text = (
                f"behind {previous.index}.{previous.term}: {names}, commit {message.commit_index}"
            )
        case AppendReply():
            text = f"agree up to {message.received_index}, durable up to {message.durable_index}"
        case AppendRefusal(previous_index=index, hint=hint):
            text = f"no such {index}, perhaps {hint.index}.{hint.term}"
        case SnapshotRequest(snapshot=SnapshotMeta(index=index, term=term)):
            text = f"snapshot {index}.{term}"
        case _:
            pass
    return text


def perform(text: str) -> str:
    """Return a scenario with the current output of its commands."""
    return scenario_files.perform(text, RaftScenario().play)


if __name__ == "__main__":
    scenario_files.rewrite(Path(__file__).parent / "scenarios", perform)
