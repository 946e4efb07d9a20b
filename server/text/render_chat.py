"""Renders chat templates for Verbatim: server/text/template_process.h starts it and speaks to it.

A line of JSON comes in; a kind and a size go out (`text N`), a line, and N bytes of UTF-8 behind it: histories are
long, and are written and read as they are. First {"template", "variables"}: no text. Then {"variables", "now",
"continues"}: what the template makes of them; with `continues`, up to the end of the last message's content. Where
"messages" is there, the variable `messages` is this list behind the first "num_kept" messages of the list "base", and
is kept as the list "slot", unless that is null. The kinds:
text     the rendered text
refused  what the template says by raise_exception
failed   {"what", "line", "message"}: an exception of Python's, the template's line and the number of the message that
         it was at, or null
The environment is what the `transformers` library gives templates: Jinja2's immutable sandbox, trimmed blocks, loop
controls, raise_exception, strftime_now, tojson without escapes, and {% generation %} blocks. The time is that of the
request, in UTC.
"""
import datetime
import json
import sys


class Refusal(Exception):
    """What the template, or this script, says of the messages."""


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
        raise Refusal(message)

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


def render(template, variables, continues):
    return render_open(template, variables) if continues else template.render(**variables)


def render_open(template, variables):
    """What the template makes of the messages, up to the end of the last one's content: as `transformers` finds it, by
    a mark behind the content. A space that templates trim stands behind the mark: where it is gone, the spaces at the
    end of the content go, too."""
    mark, space = "\U0010ffff", "\x1f"
    written = json.dumps(variables, ensure_ascii=False)
    while mark in written:
        mark += "\U0010ffff"
    *before, last = variables["messages"]
    content = last["content"]
    text = template.render(**variables | {"messages": [*before, last | {"content": content + mark + space}]})
    end = text.rfind(mark)
    if end < 0:
        raise Refusal("the template does not show the end of the last message: it cannot be continued")
    if text.startswith(space, end + len(mark)):
        return text[:end]
    return text[:end].removesuffix(content[len(content.rstrip()):])


def answer(kind, text):
    try:
        said = text.encode()
    except UnicodeEncodeError:  # surrogates
        kind, said = "refused", b"it makes text that is not UTF-8"
    sys.stdout.buffer.write(b"%s %d\n" % (kind.encode(), len(said)))
    sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()


def place_of(problem, messages):
    """The template's line, and the number of the message that it was at. Jinja shows the template's frames and names in
    the traceback."""
    line, at, trace = getattr(problem, "lineno", None), None, problem.__traceback__
    while trace:
        if "__jinja_exception__" in trace.tb_frame.f_globals:
            line = trace.tb_lineno
            names = trace.tb_frame.f_locals
            for value in [names.get("message"), *names.values()]:
                found = next((i for i, message in enumerate(messages) if message is value), None)
                if found is not None:
                    at = found
                    break
        trace = trace.tb_next
    return line, at


def answer_problem(problem, messages=()):
    if isinstance(problem, Refusal):
        return answer("refused", str(problem)[:2000].encode(errors="replace").decode())
    line, at = place_of(problem, messages if isinstance(messages, list) else ())
    what = f"{type(problem).__name__}: {problem}"[:2000].encode(errors="replace").decode()
    answer("failed", json.dumps({"what": what, "line": line, "message": at}))


def main():
    clock = {"now": 0}
    lines = open(0, "rb", buffering=1 << 20)
    first = json.loads(lines.readline())
    try:
        import jinja2
        template = make_environment(jinja2, clock).from_string(first["template"])
    except BaseException as problem:  # whatever it is, it is the answer
        return answer_problem(problem)
    answer("text", "")
    histories = {}
    for line in lines:
        variables = {}
        try:
            request = json.loads(line)
            clock["now"] = request["now"]
            variables = first["variables"] | request["variables"]
            if "messages" in request:
                kept = histories.get(request["base"], [])[:request["num_kept"]]
                variables["messages"] = kept + request["messages"]
                if request["slot"] is not None:
                    histories[request["slot"]] = variables["messages"]
            answer("text", render(template, variables, request["continues"]))
        except BaseException as problem:
            answer_problem(problem, variables.get("messages", ()))


main()
