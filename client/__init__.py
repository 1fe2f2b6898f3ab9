"""Producers, consumers and administration for programs.

`client.py` is the entry. `producer/`, `consumer/`, `admin/`, `queue/` and `transactions/` each hold
one client, `cluster/` the connections and metadata that they share. Programs import `tidelog`, not
this package.
"""
