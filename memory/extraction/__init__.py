"""Extraction: what an episode says of the attributes in play, as proposals with their evidence.

Pure: no Django, no database, no clock; the adapters here use no model and no network. `protocol` says what goes in and
comes out; `structured` reads JSON by the attributes' paths, `patterns` reads messages; `checks` lets through only what
the episode, the attributes and their schemas bear out. Proposals enter by the door of every write.
"""
