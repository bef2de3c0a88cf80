"""Operations on studies."""
