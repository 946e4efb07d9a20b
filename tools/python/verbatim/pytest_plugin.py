"""A pytest plugin: markers that audit an endpoint before the test runs.

    @pytest.mark.cold_equals_warm
    @pytest.mark.alone_equals_batched
    def test_the_server_is_sound(verbatim_audit): ...

with `pytest --verbatim-url http://127.0.0.1:8000`. A marker fails the test where its relation is corrupt, and skips it
where nothing could be compared. The fixture `verbatim_audit` runs audits by hand: `verbatim_audit(only=["order"])`.
"""

from __future__ import annotations

from typing import Any, Callable

import pytest

import verbatim

MARKERS = {
    "again_equals_again": "again",
    "cold_equals_warm": "cold-warm",
    "alone_equals_batched": "alone-batched",
    "stream_equals_whole": "stream-whole",
    "chunked_equals_whole": "chunked",
    "resumed_equals_whole": "stop-resume",
    "aborts_change_nothing": "aborted",
    "n_equals_single": "n",
    "order_changes_nothing": "order",
    "logprobs_change_nothing": "logprobs",
    "chat_equals_template": "template",
    "speculated_equals_plain": "speculation",
    "cache_equals_computed": "cache",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("verbatim")
    group.addoption("--verbatim-url", help="the OpenAI-compatible server that the markers audit")
    group.addoption("--verbatim-against", help="a second server, for speculated_equals_plain and cache_equals_computed")
    group.addoption("--verbatim-budget", default="2000,2000000", help="REQUESTS,TOKENS for one marker")
    group.addoption("--verbatim-bundles", default="verbatim-audit", help="the folder for the files of findings")


def pytest_configure(config: pytest.Config) -> None:
    for marker, relation in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: audits the relation `{relation}` before the test")


@pytest.fixture
def verbatim_audit(pytestconfig: pytest.Config) -> Callable[..., verbatim.AuditResult]:
    """`verbatim.audit` of the server of --verbatim-url; keyword arguments are those of `verbatim.audit`."""
    url = pytestconfig.getoption("--verbatim-url")

    def run(**options: Any) -> verbatim.AuditResult:
        if not url:
            pytest.skip("no server: give --verbatim-url")
        requests, tokens = pytestconfig.getoption("--verbatim-budget").split(",")
        options.setdefault("budget", (int(requests), int(tokens)))
        options.setdefault("bundles", pytestconfig.getoption("--verbatim-bundles"))
        options.setdefault("against", pytestconfig.getoption("--verbatim-against"))
        return verbatim.audit(url, **options)

    return run


@pytest.fixture(autouse=True)
def _verbatim_markers(request: pytest.FixtureRequest) -> None:
    wanted = [MARKERS[mark.name] for mark in request.node.iter_markers() if mark.name in MARKERS]
    if not wanted:
        return
    # `again` measures the noise that the others are held against.
    result = request.getfixturevalue("verbatim_audit")(only=dict.fromkeys(["again", *wanted]))
    for relation in wanted:
        finding = result[relation]
        if finding.verdict == "corrupt":
            again = f"verbatim audit --bundle {finding.bundle} --url {result.url}"
            pytest.fail(f"{relation}: {finding.why} (again: {again})", pytrace=False)
        if finding.verdict == "not tried":
            pytest.skip(f"{relation}: {finding.why}")
