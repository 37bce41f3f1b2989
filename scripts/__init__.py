"""The steps of the release pipeline, one importable module a step.

Every module has typed functions and a small command-line front: ``python -m scripts.X --help``.
"""
