"""From a chat log to governed facts, with nothing but the standard library: the script of docs/quick-start.md.

    python docs/examples/chat_log.py docs/examples/chat.jsonl --subject jonas --key "$MUNIMENT_KEY"

A line of the log is `{"at": instant, "who": "user" | "assistant" | "tool", "text": …}`; the `text` of a tool is what it
answered, text or JSON. Running it again stores nothing twice: each turn is one episode, known by its session and number.
"""

import argparse
import http.client
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

#: How long to wait for a model that reads an episode in the background.
PATIENCE_SECONDS = 90


class Muniment:
    """The API by plain HTTP."""

    def __init__(self, url: str, key: str) -> None:
        self._url = urlsplit(url)
        self._key = key

    def send(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Send one request and return its JSON. Ends the script, with the code of the refusal, where it is refused."""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.netloc, timeout=120)
        headers = {"Authorization": f"Api-Key {self._key}", "Content-Type": "application/json"}
        target = f"{self._url.path}/api/v1{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            found = json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError):
            sys.exit(
                f"no Muniment answers at {self._url.geturl()}: start it, or name another with --url or MUNIMENT_URL"
            )
        connection.close()
        if answer.status >= 400:
            sys.exit(f"{method} {path}: {answer.status} {found['code']} {found.get('errors') or ''}")
        return found


def remember(muniment: Muniment, log: Path, subject: str) -> None:
    """Send every turn as an episode, and print what became of it."""
    for number, line in enumerate(log.read_text(encoding="utf-8").splitlines(), 1):
        turn = json.loads(line)
        called = {"tool_call_id": turn.get("call", f"call-{number}")} if turn["who"] == "tool" else {}
        kept = muniment.send(
            "POST",
            "/episodes/",
            {
                "kind": "tool_result" if turn["who"] == "tool" else "message",
                "role": turn["who"],
                "content": turn["text"],
                "session_id": log.stem,
                "turn_id": f"turn-{number}",
                "subject": subject,
                "occurred_at": turn["at"],
                "extract": "now",
                **called,
            },
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while kept["extraction"]["state"] == "pending" and time.monotonic() < deadline:
            time.sleep(0.5)
            episode = muniment.send("GET", f"/episodes/{kept['id']}/")
            kept |= {name: episode[name] for name in ("extraction", "asked", "buffered", "rejected")}
            kept["facts"] = [{"fact": muniment.send("GET", f"/facts/{each}/")} for each in episode["facts"]]
        state = kept["extraction"]
        said = turn["text"] if isinstance(turn["text"], str) else json.dumps(turn["text"], ensure_ascii=False)
        print(f"{turn['at'][:10]} {turn['who']:9} {said}")
        for each in kept["facts"]:
            fact = each["fact"]
            print(f"{'':21}-> {fact['attribute']} = {fact['value']} from {fact['valid_from'][:10]}")
        for each in kept["asked"]:
            print(f"{'':21}?  {each['attribute']}: a person is asked ({', '.join(each['reasons'])})")
        for each in kept["buffered"]:
            print(f"{'':21}~  {each['attribute']}: waits until it is said again")
        for each in kept["rejected"]:
            print(f"{'':21}x  {each['attribute']}: {', '.join(each['reasons'])}")
        for name, count in kept["replaced"].items():
            print(f"{'':21}*  {name}: replaced before anything was stored, {count} time{'' if count == 1 else 's'}")
        if kept["quarantined"]:
            print(f"{'':21}*  it speaks to the agent: what is drawn from it waits for a person")
        if state["state"] not in ("done", "skipped"):
            print(f"{'':21}!  {state['state']}: {state['code']}")


def ask(muniment: Muniment, subject: str) -> None:
    """Read what holds now, what held before, and why."""
    print("\nWhat holds now:")
    holding = muniment.send("GET", "/facts/", subject=subject)["results"]
    for fact in holding:
        print(f"  {fact['attribute']} = {fact['value']} (since {fact['valid_from'][:10]}, {fact['sensitivity']})")
    # What replaced something tells most.
    for fact in sorted(holding, key=lambda fact: fact["supersedes"] is None)[:1]:
        print(f"\nWhat held of {fact['attribute']}, and why we believe it:")
        history = muniment.send("GET", f"/facts/{fact['id']}/history/")
        for stretch in history["stretches"]:
            if stretch["state"] == "held" and stretch["superseded_at"] is None:
                print(
                    f"  {stretch['value']} from {stretch['valid_from'][:10]} until {(stretch['valid_to'] or 'now')[:10]}"
                )
        for source in muniment.send("GET", f"/facts/{fact['id']}/lineage/")["sources"]:
            said = source["provenance"]
            print(f"  {said['turn_id']}, drawn by {said['extractor']}: “{said['quote']}”")


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("log", type=Path)
    parser.add_argument("--subject", required=True, help="whom the user's turns are about")
    parser.add_argument("--url", default=os.environ.get("MUNIMENT_URL", "http://127.0.0.1:8000"))
    parser.add_argument("--key", default=os.environ.get("MUNIMENT_KEY", ""), help="an agent's key")
    chosen = parser.parse_args()
    muniment = Muniment(chosen.url, chosen.key)
    remember(muniment, chosen.log, chosen.subject)
    ask(muniment, chosen.subject)


if __name__ == "__main__":
    main()
