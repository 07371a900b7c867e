"""What templates ask of words besides Django's own: a code in the reader's language."""

from django import template

from tenants.words import in_words

register = template.Library()
register.filter("said", in_words)
