"""Whether the service can answer, and what `recoquest doctor` finds."""
