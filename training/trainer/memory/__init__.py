"""The memory that a step takes, known before the first one."""
