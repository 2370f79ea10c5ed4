"""The parts that run in a process: clock, fork guard, lease manager, heartbeat, generator."""
