"""Which queues there are, in the order of their tabs."""

from retention.desk.candidates import CONFLICTS, FACTS
from retention.desk.listed import DISPOSITION, PROCEDURES, REQUESTS
from retention.desk.mentions import MENTIONS
from retention.desk.quarantine import QUARANTINE
from retention.desk.queues import Queue
from retention.desk.redactions import REDACTIONS

_ALL: tuple[Queue, ...] = (FACTS, CONFLICTS, PROCEDURES, REDACTIONS, DISPOSITION, REQUESTS, MENTIONS, QUARANTINE)
QUEUES: dict[str, Queue] = {queue.name: queue for queue in _ALL}
#: Those whose decisions may be made by a person to whom the role was handed, by name and for a time; their doors record it so.
DELEGATED = frozenset({PROCEDURES.name, REDACTIONS.name})
