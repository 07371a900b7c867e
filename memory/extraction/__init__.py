"""Extraction: what an episode says of the attributes in play, as proposals with their evidence.

Pure: no Django, no database, no clock. `protocol` says what goes in and comes out; `structured` reads JSON by the
attributes' paths, `patterns` reads messages, neither with a model or a network; `model` asks a model, where one is
configured; `checks` lets through only what the episode, the attributes and their schemas bear out. Proposals enter by the door of every write.
"""
