"""The audit trail: who searched, saw, exported, judged and changed what, as a chain of hashes."""
