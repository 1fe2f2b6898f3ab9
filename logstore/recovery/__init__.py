"""Recovery of a log after a crash: torn tails, damage, lost logs."""
