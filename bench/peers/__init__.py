"""tidelog beside the systems that a user would pick instead, on one machine, in one run."""
