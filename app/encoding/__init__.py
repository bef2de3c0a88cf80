"""Encoding of queries: a queue in front of each encoder, with isolation of failures and of hanging passes."""
