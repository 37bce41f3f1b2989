"""The Hub's endpoints, one topic a module; each has a list ``ROUTES``."""
