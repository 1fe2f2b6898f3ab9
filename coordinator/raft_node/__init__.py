"""The shell of the Raft core: storage, transport, pending proposals and reads."""
