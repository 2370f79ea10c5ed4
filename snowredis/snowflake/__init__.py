"""Ids of a leased worker id. Each of its packages imports only those before it: protocol, crash, lease, ids, upkeep."""
