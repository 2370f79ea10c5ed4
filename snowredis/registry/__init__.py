"""Shard numbers: a registry in Redis gives each pool a number of its own, which its ids contain."""
