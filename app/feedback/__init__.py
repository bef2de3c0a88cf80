"""Judgements of hits: routes and schemas."""
