"""Power cuts on a real file system: `python -m tests.system.powercut`."""
