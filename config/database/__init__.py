"""Django's PostgreSQL backend, with room for every statement of the doors to stay prepared."""
