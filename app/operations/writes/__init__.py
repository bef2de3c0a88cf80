"""Operations that write: forms of images, conditions, answers that are kept, and erasure."""
