"""Searches as callers of servers meet them: recoquest, a bare echo, Milvus and PostgreSQL with pgvector."""
