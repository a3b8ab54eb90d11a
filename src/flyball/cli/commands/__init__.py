"""Commands of `flyball`, one module each."""
