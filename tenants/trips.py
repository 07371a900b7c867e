"""One trip to the database: statements that go together, are one transaction, and come back together.

What a hot door asks is known before anything is answered. So it is written to the socket at once and waited for once,
where a cursor a statement would write, and look for answers, at each. Statements stay prepared under names of ours.
"""

import re
import select
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors, pq
from psycopg.adapt import PyFormat, Transformer

#: A statement with its parameters by name, and their values.
Question = tuple[str, Mapping[str, Any]]
Rows = list[tuple[Any, ...]]

_PARAMETER = re.compile(r"%\((\w+)\)s")
#: What says that a statement has to be prepared anew: psycopg drops every one at a ROLLBACK of its own, and what a
#: migration changes has another result type.
_STALE = ("26000", "0A000")
_CARRIED_OUT = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement as the server takes it, and the order of its parameters."""

    text: bytes
    names: tuple[str, ...]
    formats: list[PyFormat]


@lru_cache(maxsize=1_000)
def _compiled(statement: str) -> _Compiled:
    names: list[str] = []

    def place(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    text = _PARAMETER.sub(place, statement).replace("%%", "%").encode()
    return _Compiled(text, tuple(names), [PyFormat.TEXT] * len(names))


_prepared: WeakKeyDictionary[psycopg.Connection[Any], dict[str, bytes]] = WeakKeyDictionary()
_numbers = count()


def trip(session: psycopg.Connection[Any], questions: Sequence[Question]) -> list[Rows]:
    """Ask all of it in one transaction, committed when this returns, and return the rows of each question.

    Every parameter needs a type that the server can infer: a cast, or its place. Instants come back in UTC. The session
    must be in autocommit and outside every transaction. Raises what psycopg raises; then nothing of it has happened.
    """
    if session.pgconn.transaction_status != pq.TransactionStatus.IDLE or not session.autocommit:
        raise errors.ActiveSqlTransaction("a trip is a transaction of its own")
    known = _prepared.setdefault(session, {})
    with session.lock:
        try:
            return _sent(session, known, questions)
        except psycopg.Error as error:
            if error.sqlstate not in _STALE or not known:
                raise
            known.clear()
            return _sent(session, known, questions)


def _sent(session: psycopg.Connection[Any], known: dict[str, bytes], questions: Sequence[Question]) -> list[Rows]:
    pgconn, transformer = session.pgconn, Transformer(session)
    #: Of each command in turn: the statement that it prepares under a name, or None where it asks.
    commands: list[tuple[str, bytes] | None] = []
    fresh: dict[str, bytes] = {}
    pgconn.enter_pipeline_mode()
    try:
        for statement, values in questions:
            compiled = _compiled(statement)
            name = known.get(statement) or fresh.get(statement)
            if name is None:
                name = fresh[statement] = b"trip_%d" % next(_numbers)
                pgconn.send_prepare(name, compiled.text)
                commands.append((statement, name))
            texts = transformer.dump_sequence([values[each] for each in compiled.names], compiled.formats)
            pgconn.send_query_prepared(name, texts, result_format=pq.Format.BINARY)
            commands.append(None)
        pgconn.pipeline_sync()
        results = _received(pgconn, len(commands))
        pgconn.exit_pipeline_mode()
    except BaseException:
        # Answers may be under way that nobody would match with their questions.
        pgconn.finish()
        raise
    answers, failed = [], None
    for command, result in zip(commands, results, strict=True):
        if result.status not in _CARRIED_OUT:
            failed = failed or result
        elif command is None:
            answers.append(result)
        else:
            # Prepared statements outlive a transaction that fails.
            known[command[0]] = command[1]
    if failed is not None:
        raise errors.error_from_result(failed)
    return [_rows(session, result) for result in answers]


def _received(pgconn: pq.abc.PGconn, wanted: int) -> list[pq.abc.PGresult]:
    """Return the results of `wanted` commands and take the synchronisation that ends them."""
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    if pgconn.flush():
        poll.modify(pgconn.socket, select.POLLIN | select.POLLOUT)
        while pgconn.flush():
            # The server may answer before it has read everything, and reads no more until that is taken.
            if any(event & select.POLLIN for _, event in poll.poll()):
                pgconn.consume_input()
        poll.modify(pgconn.socket, select.POLLIN)

    def next_result() -> pq.abc.PGresult | None:
        while pgconn.is_busy():
            poll.poll()
            pgconn.consume_input()
        return pgconn.get_result()

    results: list[pq.abc.PGresult] = []
    for _ in range(wanted):
        result = next_result()
        if result is None:
            raise errors.OperationalError("the server left a question unanswered")
        results.append(result)
        next_result()
    next_result()
    return results


def _rows(session: psycopg.Connection[Any], result: pq.abc.PGresult) -> Rows:
    if result.status != pq.ExecStatus.TUPLES_OK or not result.ntuples:
        return []
    transformer = Transformer(session)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)
