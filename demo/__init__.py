"""The embedded default: a local Hub server and what runs on it, so that the whole chain works without any account."""
