"""XLA_FLAGS, parsed and checked exactly as a given jaxlib would."""
