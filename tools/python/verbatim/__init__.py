"""Audits of OpenAI-compatible servers: is the answer the same cached or fresh, alone or in a batch, streamed or whole?

    import verbatim

    result = verbatim.audit("http://127.0.0.1:8000", only=["cold-warm", "alone-batched"])
    assert not result.corrupt, result.summary()

The work is done by the `verbatim` program that the package brings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Mapping, Sequence

__all__ = ["AuditError", "AuditResult", "Finding", "RELATIONS", "audit", "main", "program", "run"]

#: The names of the relations, in the order in which they are run.
RELATIONS: Sequence[str] = ("again", "cold-warm", "alone-batched", "stream-whole", "chunked", "stop-resume", "aborted",
                            "n", "order", "logprobs", "template", "speculation", "cache")

_COMPLETED = (0, 1, 5)  # exit codes of an audit that ran: docs/audit.md


class AuditError(RuntimeError):
    """The audit could not run: no server, a wrong flag, a file that cannot be read. `code` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Finding:
    """What one relation found."""

    relation: str
    verdict: str  #: "equal", "drift", "corrupt" or "not tried"
    why: str  #: the evidence, or why nothing was compared
    compared: int  #: pairs of answers
    bundle: str | None = None  #: the file that shows a corruption again


@dataclass(frozen=True)
class AuditResult:
    """An audit's findings. `raw` is everything that the program says as JSON."""

    url: str
    verdict: str
    findings: tuple[Finding, ...]
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def corrupt(self) -> tuple[Finding, ...]:
        """The relations whose answers differ by more than noise explains."""
        return tuple(one for one in self.findings if one.verdict == "corrupt")

    def __getitem__(self, relation: str) -> Finding:
        for one in self.findings:
            if one.relation == relation:
                return one
        raise KeyError(relation)

    def summary(self) -> str:
        """A line for each relation."""
        return "\n".join(f"{one.relation}: {one.verdict}: {one.why}" for one in self.findings)


def program() -> Path:
    """The `verbatim` program: that of $VERBATIM_PROGRAM, or the package's own."""
    return Path(os.environ.get("VERBATIM_PROGRAM") or Path(__file__).parent / "bin" / "verbatim")


def _environment() -> dict[str, str]:
    """With the libraries that the package brings."""
    environment = dict(os.environ)
    libraries = Path(__file__).parent / "lib"
    if libraries.is_dir() and "VERBATIM_PROGRAM" not in environment:
        before = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{libraries}:{before}" if before else str(libraries)
    return environment


def run(arguments: Sequence[str], **options: Any) -> subprocess.CompletedProcess:
    """`subprocess.run` of the program with these arguments."""
    return subprocess.run([str(program()), *arguments], env=_environment(), **options)


def audit(url: str, *, only: Iterable[str] | None = None, skip: Iterable[str] | None = None, model: str | None = None,
          endpoint: str | None = None, against: str | None = None, restart: str | None = None,
          budget: tuple[int, int] | None = None, key_env: str | None = None, prompts: str | os.PathLike | None = None,
          trace: str | os.PathLike | None = None, bundles: str | os.PathLike | None = None, exact: bool = False,
          seed: int | None = None, timeout: float | None = None, restart_timeout: float | None = None,
          ca: str | os.PathLike | None = None) -> AuditResult:
    """Audits the OpenAI-compatible server at `url`.

    `only` and `skip` take names of RELATIONS; `budget` is (requests, tokens); `key_env` names the environment variable
    with the API key (OPENAI_API_KEY without it). `ca` is a file with the certificates of authorities. `bundles` is the
    folder for the files of findings. `exact` says that the server promises equal bits, so that any difference is
    corruption. Raises AuditError where no audit could run.
    """
    arguments = ["audit", url, "--format", "json"]
    values = {"--model": model, "--endpoint": endpoint, "--against": against, "--restart": restart,
              "--key-env": key_env, "--prompts": prompts, "--trace": trace, "--bundles": bundles, "--seed": seed,
              "--timeout": timeout, "--restart-timeout": restart_timeout, "--ca": ca,
              "--only": ",".join(only) if only is not None else None,
              "--skip": ",".join(skip) if skip is not None else None,
              "--budget": f"{budget[0]},{budget[1]}" if budget is not None else None}
    for flag, value in values.items():
        if value is not None and str(value):
            arguments += [flag, str(value)]
    if exact:
        arguments.append("--exact")
    done = run(arguments, capture_output=True, text=True)
    if done.returncode not in _COMPLETED:
        raise AuditError(done.stderr.strip() or f"verbatim ended with {done.returncode}", done.returncode)
    raw = json.loads(done.stdout)
    findings = tuple(Finding(one["relation"], one["verdict"], one["why"], one["compared"], one.get("bundle"))
                     for one in raw["relations"])
    return AuditResult(raw["url"], raw["verdict"], findings, raw)


def main() -> int:
    """The `verbatim` command."""
    os.execve(program(), ["verbatim", *sys.argv[1:]], _environment())
    return 4
