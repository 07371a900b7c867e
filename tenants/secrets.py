"""The process's keyring. Keys live in a directory outside the database (`MUNIMENT_KEYS`)."""

from functools import cache

from django.conf import settings

from tenants.keyring import DirectoryKeys, Keyring


@cache
def provider() -> DirectoryKeys:
    """Return the key provider of this process; keys are read from its folder when they are first needed."""
    return DirectoryKeys(settings.ENVIRONMENT.key_folder)


@cache
def keyring() -> Keyring:
    """Return the keyring of this process."""
    return Keyring(provider())
