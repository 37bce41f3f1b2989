"""The tree's own gguf package."""
