"""The architectures the converter knows."""

KNOWN = {"DFlashDraftModel": "qwen"}
