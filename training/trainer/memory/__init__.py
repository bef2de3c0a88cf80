"""The memory that a step takes, measured before the first one."""
