"""Letting an episode out of quarantine: a person has looked, and it does not speak to the agent."""

from uuid import UUID

from memory.rows import fetch
from tenants.actors import Actor, ActorKind
from tenants.audit import Action, Event, append
from tenants.errors import Clash, Forbidden
from tenants.isolation import Role, borrowed

_RELEASE = """
UPDATE memory_episode e SET quarantined = false
WHERE e.tenant_id = %s::uuid AND e.id = %s::uuid AND e.quarantined AND e.redaction_state = 'none' RETURNING e.id
"""


def release(actor: Actor, episode: UUID, *, reason: str) -> None:
    """Let agents be given an episode as context again. It is never quarantined anew: the database refuses that.

    What was drawn from it meanwhile waits as it did. In the caller's transaction under `Role.STAFF`. Raises
    `Forbidden("a_person_decides")`, and `Clash("already_decided")` where it is not in quarantine.
    """
    if actor.kind is not ActorKind.PERSON:
        raise Forbidden("a_person_decides")
    with borrowed(Role.WORKER, back_to=Role.STAFF):
        released = fetch(_RELEASE, [actor.tenant, episode])
    if not released:
        raise Clash("already_decided")
    event = Event(actor=actor, action=Action.EPISODE_RELEASED, target_kind="episode", target_id=episode, reason=reason)
    append([event])
