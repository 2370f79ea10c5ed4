"""Services of the process that every generator needs: clock, fork, exit, threads and locks."""

# processes tell the version of this package, since versions may be mixed in a fleet
VERSION = "0.1.0"
