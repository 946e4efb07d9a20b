"""Renders chat templates for Verbatim: server/text/template_process.h starts it and speaks to it.

A line of JSON comes in; `text N` or `error N` goes out, a line, and N bytes of UTF-8 behind it: histories are long, and
are written and read as they are. First {"template", "variables"}: no text. Then {"variables", "now"}: what the template
makes of them. The environment is what the `transformers` library gives templates:
Jinja2's immutable sandbox, trimmed blocks, loop controls, raise_exception, strftime_now, tojson without escapes, and
{% generation %} blocks. The time is that of the request, in UTC.
"""
import datetime
import json
import sys


def make_environment(jinja2, clock):
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """What the assistant says, marked for training; rendering only passes it on."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_pass_on"), [], [], body).set_lineno(line)

        def _pass_on(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(clock["now"], datetime.timezone.utc).strftime(form)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def answer(kind, text):
    try:
        said = text.encode()
    except UnicodeEncodeError:  # surrogates
        kind, said = "error", b"it makes text that is not UTF-8"
    sys.stdout.buffer.write(b"%s %d\n" % (kind.encode(), len(said)))
    sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()


def describe(problem):
    line = getattr(problem, "lineno", None)
    where = f" (line {line} of the template)" if line else ""
    return f"{type(problem).__name__}: {problem}{where}"[:2000].encode(errors="replace").decode()


def main():
    clock = {"now": 0}
    lines = open(0, "rb", buffering=1 << 20)
    first = json.loads(lines.readline())
    try:
        import jinja2
        template = make_environment(jinja2, clock).from_string(first["template"])
    except BaseException as problem:  # whatever it is, it is the answer
        return answer("error", describe(problem))
    answer("text", "")
    for line in lines:
        try:
            request = json.loads(line)
            clock["now"] = request["now"]
            answer("text", template.render(**{**first["variables"], **request["variables"]}))
        except BaseException as problem:
            answer("error", describe(problem))


main()
