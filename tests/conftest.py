"""Settings that hold for every test."""

import os

import hypothesis

# The same examples in every run: a red test is red for everyone. Deadlines are off because a
# busy machine is not a bug; pytest's timeout ends what hangs.
hypothesis.settings.register_profile("tidelog", derandomize=True, deadline=None)

# Many examples, others in every run: HYPOTHESIS_PROFILE=thorough make test ARGS="--timeout=0"
hypothesis.settings.register_profile("thorough", max_examples=2000, deadline=None)

hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tidelog"))
