"""Commands of an operator: serve, work, jobs, backup, examination."""
