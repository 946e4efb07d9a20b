"""record_files.py PROGRAM: the record of a server that is killed, of the next one, of one whose disk is full, and of
one that drafts."""

import os
import resource
import signal
import subprocess
import sys
import tempfile

from served import Served, program

MAGIC = b"VERBATIM RECORD\n"
LIMIT = 1 << 16  # bytes of a file: it stands for a full disk


def complete(server, number):
    body = {"prompt": f"def function_{number}(a, b):", "max_tokens": 64, "temperature": 0}
    status, answer = server.ask("/v1/completions", body)
    assert status == 200, answer


def metric(server, name):
    for line in server.ask("/metrics")[1].splitlines():
        if line.startswith(name + "{"):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"/metrics has no {name}")


def content(path):
    with open(path, "rb") as file:
        return file.read()


def said_by(errors):
    errors.seek(0)
    return errors.read()


def check_kill(record):
    """What a killed server recorded stays, also when the next one records to the same name."""
    with Served(program(), "--record", record, ends_with=-signal.SIGKILL) as server:
        number = 0
        while len(content(record + ".partial")) < 8192:
            number += 1
            assert number < 100, "nothing is written while the server runs"
            complete(server, number)
        assert metric(server, "verbatim:record_failed") == 0
        assert content(record) == b"former"
        server.process.send_signal(signal.SIGKILL)
    killed = content(record + ".partial")
    assert killed.startswith(MAGIC) and len(killed) >= 8192, len(killed)
    with tempfile.TemporaryFile("w+") as errors:
        with Served(program(), "--record", record, errors=errors) as server:
            complete(server, 2)
            second = subprocess.run([program(), "serve", "--port", "0", "--ledger", "none", "--record", record],
                                    capture_output=True, text=True, timeout=60, check=False)
            assert second.returncode == 4 and record + ": is being written" in second.stderr, second
            complete(server, 3)
        assert record + ".partial.1" in said_by(errors), said_by(errors)
    assert content(record + ".partial.1") == killed
    assert content(record).startswith(MAGIC) and not os.path.exists(record + ".partial")


def check_full_disk(record):
    """It is said at once, the server goes on, and the good record before it stays."""
    former = content(record)
    with tempfile.TemporaryFile("w+") as errors:
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
        with Served(program(), "--record", record, errors=errors, ends_with=4, before=limit) as server:
            number = 0
            while metric(server, "verbatim:record_failed") == 0:
                number += 1
                assert number < 400, "64 KiB hold everything?"
                complete(server, number)
            said = [line for line in said_by(errors).splitlines() if "--record" in line]
            assert len(said) == 1 and "File too large" in said[0] and "goes on without a record" in said[0], said
            size = metric(server, "verbatim:record_bytes")
            assert 4096 < size <= LIMIT, size
            complete(server, 0)
            assert metric(server, "verbatim:record_bytes") == size
    assert content(record) == former
    assert content(record + ".partial").startswith(MAGIC)


def check_ledger(path):
    """A record is not written over the ledger, which need not be there yet."""
    for address in (path, "sqlite://" + path):
        both = subprocess.run([program(), "serve", "--port", "0", "--ledger", address, "--record", path],
                              capture_output=True, text=True, timeout=60, check=False)
        assert both.returncode == 3 and "are one file" in both.stderr, both
        assert not os.path.exists(path)


def check_drafts(record):
    """Windows are in the record, and a run of it gives the same again."""
    with Served(program(), "--draft", "ngram", "--record", record) as server:
        body = {"prompt": "def first(a, b):", "max_tokens": 96, "temperature": 0, "return_turn_details": True}
        assert server.ask("/v1/completions", body)[1]["choices"][0]["turn_details"]["windows"], "nothing was drafted"
        complete(server, 1)
    verified = subprocess.run([program(), "verify", record], capture_output=True, text=True, timeout=300, check=False)
    assert verified.returncode == 0 and "identical" in verified.stdout, verified


def main():
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "run.rec")
        with open(record, "wb") as file:
            file.write(b"former")
        check_kill(record)
        check_full_disk(record)
        check_ledger(os.path.join(folder, "both"))
        check_drafts(os.path.join(folder, "drafts.rec"))
    print("records stay whole")


if __name__ == "__main__":
    sys.exit(main())
