"""What every generator needs of its process: clock, fork, exit, threads and locks."""
