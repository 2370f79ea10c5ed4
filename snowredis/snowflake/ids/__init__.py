"""Ids of a held lease: which ticks may be used, and the fast path that uses them."""
