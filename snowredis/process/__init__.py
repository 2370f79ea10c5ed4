"""Services of the process that every generator needs: clock, fork, exit, threads and locks."""
