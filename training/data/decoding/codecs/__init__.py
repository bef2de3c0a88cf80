"""What single formats need beside a decoder: damage, depth, and frames that are counted unread."""
