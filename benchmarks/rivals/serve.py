"""The rivals, in a process and virtual environment of their own: jobs come as lines of JSON, answers go as lines of JSON.

Imports nothing of Muniment. Both rivals work as their documentation shows, on one persistent connection each.
"""

import hashlib
import json
import os
import sys
from time import perf_counter

DIMENSIONS = 64


class HashEmbedder:
    """Text to a vector by hashing words: no model and no network, and next to no time."""

    config = None

    def embed(self, text, memory_action=None):
        vector = [0.0] * DIMENSIONS
        for word in text.lower().split():
            digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
            vector[digest[0] % DIMENSIONS] += 1.0 if digest[1] & 1 else -1.0
        length = sum(each * each for each in vector) ** 0.5 or 1.0
        return [each / length for each in vector]

    def embed_batch(self, texts, memory_action=None):
        return [self.embed(text, memory_action) for text in texts]


class Store:
    """`PostgresStore` of langgraph-checkpoint-postgres."""

    def __init__(self, url):
        from langgraph.store.postgres import PostgresStore

        self._context = PostgresStore.from_conn_string(url)
        self.store = self._context.__enter__()
        self.store.setup()

    def get(self, number):
        item = self.store.get(("facts", f"subject-{number}"), "passport_deadline")
        assert item is not None

    def put(self, number):
        self.store.put(("facts", f"subject-{number}"), "passport_deadline", {"value": _value(number)})


class Mem0:
    """`Memory` of mem0ai with its pgvector store, an embedder by hashing, and `infer=False`."""

    def __init__(self, url, folder):
        # Read when it is imported: no telemetry, its SQLite history in a folder that goes with the run.
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": folder, "OPENAI_API_KEY": "none"}
        from mem0 import Memory

        store = {
            "connection_string": url,
            "collection_name": "mem0",
            "embedding_model_dims": DIMENSIONS,
            "hnsw": True,
        }
        self.memory = Memory.from_config(
            {
                "vector_store": {"provider": "pgvector", "config": store},
                "history_db_path": os.path.join(folder, "history.db"),
            }
        )
        self.memory.embedding_model = HashEmbedder()

    def add(self, number):
        added = self.memory.add(
            f"The passport of subject-{number} must be renewed by {_value(number)}.",
            user_id=f"subject-{number}",
            metadata={"attribute": "passport_deadline", "turn_id": "t1"},
            infer=False,
        )
        assert added["results"]


def _value(number):
    return f"2026-07-{number % 28 + 1:02d}"


def main():
    url, folder = sys.argv[1:]
    # A rival that prints must not break the conversation.
    answers, sys.stdout = sys.stdout, sys.stderr
    store, mem0 = Store(url), Mem0(url, folder)
    jobs = {"get": store.get, "put": store.put, "add": mem0.add}
    for line in sys.stdin:
        asked = json.loads(line)
        job, took = jobs[asked["job"]], []
        for number in asked["numbers"]:
            began = perf_counter()
            job(number)
            took.append(perf_counter() - began)
        print(json.dumps({"seconds": took}), file=answers, flush=True)


if __name__ == "__main__":
    main()
