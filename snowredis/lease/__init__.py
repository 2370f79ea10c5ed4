"""Leases of worker ids: the pool's protocol, the Lua scripts, and the stores that run them.

Reads no wall clock, starts no thread and handles no signal: the caller passes its clock's time.
"""
