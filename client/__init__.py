"""Producer, consumer and admin: what programs use to talk to brokers.

Users import it through `tidelog`; nothing here knows the server side.
"""
