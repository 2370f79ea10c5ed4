"""The way to a Redis: clients from URLs and from applications, their connections, and Redis Cluster."""
