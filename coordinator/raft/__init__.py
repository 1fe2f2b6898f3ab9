"""Raft: agreement on one log, as a pure core.

A shell uses `core.RaftCore` only. The core knows neither clock nor network nor disk:

    core = RaftCore(identity, stored, config, random)

    core.tick()                       every 100 ms
    core.step(message)                a message arrived
    core.propose(payload)             append a command, on the leader
    core.read(context)                a linearizable read, on the leader
    core.change_membership(change)    add a learner, promote it, remove a member, on the leader
    core.transfer_leadership(node_id)

    ready = core.ready()              after any of them, until it `is_empty`:
        ready.write                   make it durable, in this order, then call core.synced(write)
        ready.messages                send them now; the core holds back what must wait for a write
                ready.snapshot                give it to the state machine, before
                ready.committed               apply these entries, in order
                ready.reads                   serve each read as soon as its index is applied

There is one write under way at a time. Input that arrives meanwhile goes into the next one, so one
sync serves many. `docs/raft.md` explains the rest.

| module | |
|---|---|
| `core` | `RaftCore`: the roles of a node and its transitions |
| `leader` | `Leader`: the state of a leader in its term |
| `follower` | `Follower`: how a node accepts the log of its leader |
| `candidate` | `Candidate`: the votes of one campaign; the election timeout |
| `reads` | ReadIndex: reads that wait until a majority has confirmed the leader |
| `progress` | the leader's state of one follower |
| `log` | the log, its memberships and its snapshot |
| `hard_state` | `HardStateGate`: term and vote, and the messages that wait until they are durable |
| `pending_write` | `PendingWrite`: the one write that is on its way to the disk |
| `ready` | values that pass between the core and its shell |
| `membership`, `messages`, `config`, `errors` | declarations |
"""
