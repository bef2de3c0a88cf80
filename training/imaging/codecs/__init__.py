"""Needs of single formats beside a decoder: damage, depth, and frames that are counted unread."""
