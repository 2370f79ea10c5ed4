"""Read-only views of pools, for the command line, the web and whoever watches a fleet."""
