"""Deterministic simulator: fakes of disk, clock, network and processes, with their faults."""
