"""Loads a server with many clients at once, and compares with one client that asks one thing after the other.

    python scripts/bench/serving.py --model runs/multi30k-en-de --text data/multi30k/val.en --seconds 60

It starts `mt serve`. First one client asks for one sentence at a time; then 64 clients do, each the next one as soon as
it has its answer. Every answer is compared with what the same sentence gave when it was alone, so an answer that went
to another client, or got lost, is counted.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse


@dataclass
class Tally:
    """The answers of the server.

    Attributes:
        seconds: of each answer.
        wrong: answers that were not the translation of their question.
        refused: answers with an error.
    """

    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    refused: int = 0

    def line(self, name: str, spent: float) -> str:
        ranked = sorted(self.seconds)
        p50, p99 = (1000 * ranked[int(share * (len(ranked) - 1))] for share in (0.5, 0.99))
        return (
            f"{name:<12}{len(ranked):>8} requests in {spent:.1f} s, {len(ranked) / spent:>7.1f} a second, "
            f"p50 {p50:>6.1f} ms, p99 {p99:>6.1f} ms, wrong {self.wrong}, refused {self.refused}"
        )


class Client:
    """One connection that is kept open."""

    def __init__(self, host: str, port: int, source: str, target: str) -> None:
        self._where, self._languages = (host, port), {"source": source, "target": target}

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._where)

    async def ask(self, text: str) -> str | None:
        """Return the translation, or None if the server refuses."""
        body = json.dumps({"q": text, **self._languages}).encode()
        head = ["POST /translate HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        self._writer.write("\r\n".join([*head, "\r\n"]).encode() + body)
        await self._writer.drain()
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", answer.lower())[1])
        content = json.loads(await self._reader.readexactly(length))
        return content.get("translatedText")

    def close(self) -> None:
        self._writer.close()


async def load(
    clients: list[Client], lines: list[str], expected: dict[str, str], seconds: float
) -> tuple[Tally, float]:
    """Let all clients ask for a while; each begins at another line and returns to the first after the last."""
    tally, start = Tally(), time.perf_counter()

    async def work(client: Client, number: int) -> None:
        while time.perf_counter() - start < seconds:
            line = lines[number % len(lines)]
            number += len(clients)
            started = time.perf_counter()
            found = await client.ask(line)
            tally.seconds.append(time.perf_counter() - started)
            tally.refused += found is None
            tally.wrong += found is not None and found != expected[line]

    await asyncio.gather(*(work(client, number) for number, client in enumerate(clients)))
    return tally, time.perf_counter() - start


async def measure(url: str, arguments: argparse.Namespace) -> None:
    lines = list(dict.fromkeys(arguments.text.read_text(encoding="utf-8").split("\n")[:-1]))[: arguments.lines]
    where = urlparse(url)
    source, target = arguments.languages
    clients = [Client(where.hostname, where.port, source, target) for _ in range(arguments.clients)]
    for client in clients:
        await client.connect()
    expected = {line: await clients[0].ask(line) for line in lines}
    one, spent_one = await load(clients[:1], lines, expected, arguments.seconds / 3)
    many, spent_many = await load(clients, lines, expected, arguments.seconds)
    again, spent_again = await load(clients[:1], lines, expected, arguments.seconds / 3)
    print(one.line("1 client", spent_one))
    print(many.line(f"{arguments.clients} clients", spent_many))
    print(again.line("1 client", spent_again))
    alone = (len(one.seconds) + len(again.seconds)) / (spent_one + spent_again)
    print(f"throughput: {len(many.seconds) / spent_many / alone:.2f} times that of one client")
    for client in clients:
        client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a run or model folder")
    parser.add_argument("--text", type=Path, required=True, help="sentences to ask for, one a line")
    parser.add_argument("--languages", nargs=2, default=("en", "de"), metavar=("SOURCE", "TARGET"))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--compute-type", default="auto", help="the server's number format")
    parser.add_argument("--lines", type=int, default=500, help="different sentences")
    arguments = parser.parse_args()
    words = [sys.executable, "-m", "mt", "serve", "--model", arguments.model, "--port", "0", "--rate-limit", "0"]
    words += ["--compute-type", arguments.compute_type]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = next(found[0] for line in server.stderr if (found := re.search(r"http://[^/]*", line)))
            asyncio.run(measure(address, arguments))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
