"""A server of this build for one test: started on a free port, stopped whatever happens."""

import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import urllib.error
import urllib.request

SKIPPED = 77


def skip(reason):
    print("skipped:", reason)
    sys.exit(SKIPPED)


def module_of(name, environment):
    """The module; where it is missing, the script starts again with the tests' environment, or is skipped."""
    try:
        return importlib.import_module(name)
    except ImportError:
        python = pathlib.Path(environment) / "bin" / "python"
        if not python.exists() or sys.executable == str(python):
            skip(f"no {name}, Wire.Environment says why: where pip reaches a package index, "
                 f"`python3 -B tests/environment.py {environment}` brings it")
        os.execv(python, [str(python), "-B", *sys.argv])


def refused(kind, deed):
    """The exception of the kind that the deed raises."""
    try:
        deed()
    except kind as problem:
        return problem
    raise AssertionError(f"no {kind.__name__}")


class Served:
    """`with Served(program, "--api-key-file", path) as server:` and server.base is its address."""

    def __init__(self, program, *flags, cache="128MiB", bare=False, env=None, errors=None, ends_with=0,
                 before=None):
        plain = [] if bare else ["--threads", "1", "--cache", cache, "--ledger", "none"]
        self.command = [program, "serve", "--port", "0", *plain, *flags]
        self.env, self.errors, self.ends_with, self.before = env, errors, ends_with, before

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.errors, env=self.env,
                                        preexec_fn=self.before, text=True)
        line = self.process.stdout.readline()
        if " at http://" not in line:
            self.process.kill()
            raise SystemExit(f"{' '.join(self.command)} said {line!r}")
        self.base = line.split(" at ", 1)[1].strip().removesuffix("/v1")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        assert self.process.returncode == self.ends_with, f"the server ended with {self.process.returncode}"

    def ask(self, path, body=None, headers=None):
        """Status and JSON (or text) of one request."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as problem:
            status, text = problem.code, problem.read().decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text


def program():
    """The program under test."""
    path = sys.argv[1]
    assert os.access(path, os.X_OK), f"{path} cannot be run"
    return path
