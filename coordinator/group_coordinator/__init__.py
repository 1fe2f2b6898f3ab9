"""The group coordinator's shell: heartbeats, commits, leadership."""
