"""The demonstration: a tenant with two people and an agent, and the trace of a stale fact through the real API."""
