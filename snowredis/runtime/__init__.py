"""The parts that run in a process: clock, fork guard, lease lease_manager, heartbeat, generator."""
