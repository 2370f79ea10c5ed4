"""Ids of a leased worker id: the protocol, its Lua scripts and stores, the fast path, the lease and its lifecycle."""
