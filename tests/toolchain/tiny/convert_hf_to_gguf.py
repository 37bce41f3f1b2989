"""A converter by name only: the source step reads it and never runs it."""
