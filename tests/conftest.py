"""Settings that hold for every test."""

import hypothesis

# The same examples in every run: a red test is red for everyone. Deadlines are off because a
# busy machine is not a bug; pytest's timeout ends what hangs.
hypothesis.settings.register_profile("tidelog", derandomize=True, deadline=None)
hypothesis.settings.load_profile("tidelog")
