"""responses_client.py PROGRAM SCRIPTED_SERVER ENVIRONMENT: /v1/responses with the stock openai client: the trained
model of the repository, and a loop of tools with scripted answers."""

import json
import sys

from scripted import Scripted, hermes, qwen
from served import Served, module_of, program, refused

openai = module_of("openai", sys.argv[3])

PLAIN = {"model": "tiny-python", "max_output_tokens": 24, "temperature": 0}
QUESTION = "Write a function that adds two numbers."
TOOLS = [{"type": "function", "name": "read_file", "description": "Reads lines of a file.", "strict": True,
          "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
                         "required": ["path", "lines"], "additionalProperties": False}}]


def client_of(server):
    return openai.OpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0)


def streamed(client, **asked):
    """The response as the client puts it together, and the types of its events."""
    with client.responses.stream(**asked) as stream:
        events = list(stream)
        last = events[-1]
        if last.type == "response.completed":
            assert stream.get_final_response().output_text == last.response.output_text
        return last.response, [event.type for event in events]


def check_answers(client):
    whole = client.responses.create(**PLAIN, input=QUESTION, instructions="Be short.", metadata={"a": "b"})
    assert whole.output_text and whole.status in ("completed", "incomplete"), whole
    assert whole.metadata == {"a": "b"} and whole.instructions == "Be short.", whole
    assert whole.usage.input_tokens_details.cached_tokens == 0, whole.usage
    again, types = streamed(client, **PLAIN, input=QUESTION, instructions="Be short.")
    assert again.output_text == whole.output_text, (again, whole)
    assert again.usage.total_tokens == whole.usage.total_tokens
    assert again.usage.input_tokens_details.cached_tokens == again.usage.input_tokens - 1
    assert types[:2] == ["response.created", "response.in_progress"], types
    assert types[-1] == f"response.{whole.status}", types
    deltas = client.responses.create(**PLAIN, input=QUESTION, instructions="Be short.", stream=True)
    assert "".join(e.delta for e in deltas if e.type == "response.output_text.delta") == whole.output_text
    chat = client.chat.completions.create(model="tiny-python", temperature=0, max_tokens=24, messages=[
        {"role": "system", "content": "Be short."}, {"role": "user", "content": QUESTION}])
    assert chat.choices[0].message.content == whole.output_text


def check_chain(client):
    first = client.responses.create(**PLAIN, input=QUESTION)
    second = client.responses.create(**PLAIN, input="Again, please.", previous_response_id=first.id)
    history = [{"role": "user", "content": QUESTION}, *first.output, {"role": "user", "content": "Again, please."}]
    stateless = client.responses.create(**PLAIN, input=history, store=False)
    assert stateless.output_text == second.output_text
    assert second.usage.input_tokens_details.cached_tokens == first.usage.total_tokens - 1, second.usage
    branch = client.responses.create(**PLAIN, input="Again, please.", previous_response_id=first.id)
    assert branch.output_text == second.output_text and branch.id != second.id
    assert client.responses.retrieve(second.id) == second
    items = list(client.responses.input_items.list(second.id, order="asc", limit=1))
    assert [item.role for item in items] == ["user", "assistant", "user"], items
    assert items[1].content[0].text == first.output_text and items[2].content[0].text == "Again, please.", items
    client.responses.delete(first.id)
    for deed in (lambda: client.responses.retrieve(first.id), lambda: client.responses.retrieve(stateless.id),
                 lambda: client.responses.create(**PLAIN, input="a", previous_response_id=first.id)):
        assert refused(openai.NotFoundError, deed).code == "response_not_found"
    third = client.responses.create(**PLAIN, input="And again.", previous_response_id=second.id)
    assert third.output_text and third.previous_response_id == second.id


def check_errors(client):
    create = client.responses.create
    for fields, param in (({"tools": [{"type": "web_search"}]}, "tools[0]"), ({"background": True}, "background"),
                          ({"conversation": "c"}, "conversation"), ({"max_output_tokens": 0}, "max_output_tokens")):
        wrong = refused(openai.BadRequestError, lambda: create(**{**PLAIN, "input": QUESTION, **fields}))
        assert wrong.param == param, wrong
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}]
    assert refused(openai.BadRequestError, lambda: create(**PLAIN, input=image)).param == "input[0].content[0]"
    deed = refused(openai.NotFoundError, lambda: client.embeddings.create(model="tiny-python", input="a"))
    assert "POST /v1/responses" in str(deed)
    assert refused(openai.NotFoundError,
                   lambda: client.responses.input_items.list("resp_1")).code == "response_not_found"


def run_agent(server, write, reasons, ask, stored):
    """Two calls at once, then the answer; with the server's history or the client's. Returns the tools' answers."""
    prefix = "I look at it.\n</think>\n\n" if reasons else ""
    server.say(f"{prefix}Both files.\n\n{write('a.py', 1)}\n{write('ä b.py', 2)}")
    history = [{"role": "user", "content": "What is in the files?"}]
    first = ask(input=history, store=stored)
    kinds = [item.type for item in first.output]
    assert kinds == ["reasoning"] * reasons + ["message", "function_call", "function_call"], first
    assert first.output_text == "Both files." and first.status == "completed", first
    answers = []
    for call in first.output[-2:]:
        arguments = json.loads(call.arguments)
        answers.append({"type": "function_call_output", "call_id": call.call_id,
                        "output": f"{arguments['lines']} lines of {arguments['path']}"})
    server.say(prefix + "Two files.")
    if stored:
        second = ask(input=answers, previous_response_id=first.id)
    else:
        sent_back = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
        second = ask(input=history + sent_back + answers, store=False)
    assert second.output_text == "Two files.", second
    if stored and not reasons:  # templates leave earlier reasoning out
        assert second.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 1, second.usage
    return [one["output"] for one in answers]


def check_tools(scripted):
    for family, write, reasons in (("hermes", hermes, False), ("qwen-think", qwen, True)):
        for stored in (True, False):
            with Scripted(scripted, family) as server:
                client, asked = client_of(server), {"model": "tiny-python", "tools": TOOLS}
                asks = (lambda **more: client.responses.create(**asked, **more),
                        lambda **more: streamed(client, **asked, **more)[0])
                for ask in asks:
                    outputs = run_agent(server, write, reasons, ask, stored)
                    assert outputs == ["1 lines of a.py", "2 lines of ä b.py"], outputs


def main():
    with Served(program()) as server:
        client = client_of(server)
        check_answers(client)
        check_chain(client)
        check_errors(client)
    check_tools(sys.argv[2])


if __name__ == "__main__":
    main()
