#!/usr/bin/env python3
"""Measures what a tier of heads costs and gives (docs/heads.md): `verbatim serve` with --tier beside one without.

decode   clients that stream answers while the heads of every turn are written: tokens per second between the first
         and the last token of each answer. Both servers get the same requests, in turn; the ratio is that of each
         round, and its median is shown
restore  a conversation of --tokens tokens: computing it; then, after kill -9 and a restart, its next turn; beside it
         what reading the head's file and copying it takes, from the page cache and from the disk

    tools/head/measure_tier.py --verbatim build/release/verbatim --model DIR decode --rounds 9
    tools/head/measure_tier.py --verbatim build/release/verbatim --model DIR restore --tokens 20000
"""
import argparse
import glob
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request


class Server:
    """A server on a port of its own choice."""

    def __init__(self, options, more):
        command = [options.verbatim, "serve", "--model", options.model, "--port", "0", "--ledger", "none",
                   "--threads", str(options.threads), "--cache-bytes", options.cache_bytes] + more
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.url = None
        while self.url is None:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit("the server ended:\n" + "".join(self.lines))
            self.lines.append(line)
            if found := re.search(r"http://[^/\s]+:\d+", line):
                self.url = found.group()
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        while True:
            try:
                urllib.request.urlopen(self.url + "/ready", timeout=5)
                return
            except OSError:
                time.sleep(0.2)

    def ask(self, body):
        """The answer's JSON, and the seconds it took."""
        begin = time.time()
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=7200) as answer:
            return json.load(answer), time.time() - begin

    def stream(self, body):
        """The tokens of an answer after the first one, and the seconds between the first and the last."""
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps({**body, "stream": True}).encode(),
                                         {"Content-Type": "application/json"})
        times = []
        with urllib.request.urlopen(request, timeout=7200) as answer:
            for line in answer:
                if line.startswith(b"data: {") and b'"choices":[{' in line:
                    times.append(time.time())
        return len(times) - 1, times[-1] - times[0]

    def metrics(self):
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                if line.startswith("verbatim:tier")}

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()


def prompt_of(rng, count):
    return [rng.randrange(10, 2000) for _ in range(count)]


def decode(options):
    folder = tempfile.mkdtemp(dir=options.scratch)
    servers = {"without": Server(options, []), "with": Server(options, ["--tier", folder])}
    rng = random.Random(1)
    speeds = {"without": [], "with": []}
    for round_number in range(-1, options.rounds):
        prompts = [prompt_of(rng, options.prompt) for _ in range(options.clients)]
        order = list(servers) if round_number % 2 else list(servers)[::-1]
        for name in order:
            results = []
            body = {"max_tokens": options.output, "ignore_eos": True, "temperature": 0}
            def client(prompt, server=servers[name], results=results, body=body):
                results.append(server.stream({**body, "prompt": prompt}))
            threads = [threading.Thread(target=client, args=[prompt]) for prompt in prompts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if round_number >= 0:
                speeds[name].append(sum(tokens / seconds for tokens, seconds in results))
    ratios = [a / b for a, b in zip(speeds["with"], speeds["without"])]
    metrics = servers["with"].metrics()
    for server in servers.values():
        server.end()
    shutil.rmtree(folder)
    print(f"decoding, tokens/s: without {statistics.median(speeds['without']):.2f}, "
          f"with {statistics.median(speeds['with']):.2f}")
    print(f"ratio of each round: median {statistics.median(ratios):.3f}, "
          + " ".join(f"{ratio:.3f}" for ratio in sorted(ratios)))
    print(f"written: {metrics['verbatim:tier_writes_total']:.0f} heads, "
          f"{metrics['verbatim:tier_written_bytes_total'] / 1e6:.1f} MB; not written: "
          f"{metrics['verbatim:tier_not_written_total']:.0f}")


def read_and_copy(paths, from_disk):
    """Seconds for the bytes of some files: read into memory, and copied once."""
    if from_disk:
        for path in paths:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin = time.time()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            to = bytearray(os.fstat(file.fileno()).st_size)
            file.readinto(to)
        bytes(to)
    return time.time() - begin


def restore(options):
    folder = tempfile.mkdtemp(dir=options.scratch)
    tier = ["--tier", folder, "--restore", "always"]
    prompt = prompt_of(random.Random(2), options.tokens)
    body = {"max_tokens": 1, "temperature": 0}
    server = Server(options, tier)
    _, computing = server.ask({**body, "prompt": prompt})
    while server.metrics()["verbatim:tier_writes_total"] < 2:
        time.sleep(0.1)
    server.end(signal.SIGKILL)
    print(f"computing {options.tokens} tokens: {computing:.2f} s")
    for from_disk in [False, True]:
        times, reads, copies = [], [], []
        for i in range(options.rounds):
            paths = sorted(glob.glob(folder + "/*.head"), key=os.path.getsize)[-2:]
            copies.append(read_and_copy(paths[-1:], from_disk))
            server = Server(options, tier)
            if from_disk:
                for path in paths:
                    with open(path, "rb") as file:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            answer, seconds = server.ask({**body, "prompt": prompt + [5, 6, 7 + i]})
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            metrics = server.metrics()
            again, in_memory = server.ask({**body, "prompt": prompt + [5, 6, 700 + i]})
            server.end(signal.SIGKILL)
            times.append(seconds - in_memory)
            reads.append(metrics["verbatim:tier_read_seconds_total"])
        size = os.path.getsize(paths[-1])
        where = "disk" if from_disk else "page cache"
        print(f"{where}: next turn, of {cached} cached tokens, beyond the same from memory: "
              f"{statistics.median(times):.3f} s; of it reading and checking {statistics.median(reads):.3f} s; "
              f"reading and copying {size / 1e6:.1f} MB in Python: {statistics.median(copies):.3f} s; "
              f"over reading and checking {statistics.median(copies) / statistics.median(reads):.2f}")
    shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbatim", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--cache-bytes", default="4GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scratch", help="the folder in which the tier's folder is made")
    parser.add_argument("what", choices=["decode", "restore"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=256, help="tokens")
    parser.add_argument("--output", type=int, default=48, help="tokens")
    parser.add_argument("--tokens", type=int, default=20000)
    options = parser.parse_args()
    {"decode": decode, "restore": restore}[options.what](options)


main()
