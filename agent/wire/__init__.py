"""Pure floor: bytes and texts to domain values and back. Bad input becomes a named BadInput here, never deeper."""
