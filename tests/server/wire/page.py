"""page.py PROGRAM [--pictures FOLDER]: the page at / in headless Chromium, led by keys and clicks: turns, Markdown,
stop, regenerate, edit, fork, reload, the list, errors, two sizes, a model without a chat template. With a folder: the
pictures of docs/serve.md instead."""

import json
import os
import pathlib
import signal
import sys
import tempfile

from chromium import SHIFT, Browser, chromium_path
from page_markdown import MARKDOWN, INJECTIONS
from served import Served, program

DRAFTS = ("--draft", "ngram", "--window", "4")
IDLE = "state.running === null && $('turns').getAttribute('aria-busy') === 'false'"


class Chat:
    """The page of a server, as a reader uses it."""

    def __init__(self, browser, server, path="/"):
        self.server = server
        self.page = browser.page(server.base + path)
        self.page.wait("$('model').textContent !== '…' && !$('form').hidden")
        self.set("temperature", 0)
        self.set("limit", 24)

    def set(self, name, value):
        self.page.evaluate(f"$('{name}').value = {json.dumps(str(value))};"
                           f"$('{name}').dispatchEvent(new Event('change', {{bubbles: true}}))")

    def send(self, text):
        """A message, by keys alone; when its turn is over."""
        count = self.page.evaluate("document.querySelectorAll('article.user').length")
        self.page.evaluate("$('text').focus()")
        self.page.write(text)
        self.page.press("Enter")
        self.page.wait(f"document.querySelectorAll('article.user').length === {count + 1} && {IDLE}")

    def press(self, text, which=-1):
        """A button, by what stands on it."""
        at = self.page.wait(f"""(() => {{
            const all = [...document.querySelectorAll('button')].filter(one => one.checkVisibility());
            const found = all.filter(one => one.textContent === {json.dumps(text)}).at({which});
            document.querySelectorAll('.aimed').forEach(one => one.classList.remove('aimed'));
            found?.classList.add('aimed');
            return Boolean(found);
        }})()""")
        assert at
        self.page.click(".aimed")

    def texts(self, role):
        return self.page.evaluate(f"[...document.querySelectorAll('article.{role} .body')].map(b => b.textContent)")

    def figures(self):
        return self.page.evaluate("[...document.querySelectorAll('.seed .figures')].map(line => line.textContent)")

    def id(self):
        return self.page.evaluate("state.conversation.id")

    def ledger(self, conversation=None):
        return self.server.ask(f"/v1/conversations/{conversation or self.id()}?content=true")[1]

    def metric(self, name):
        return int(self.server.ask("/metrics")[1].split(name + '{model_name="tiny-python"} ')[1].split("\n")[0])

    def notice(self):
        return self.page.wait("!$('notice').hidden && $('notice').textContent")

    def no_notice(self):
        assert self.page.evaluate("$('notice').hidden"), self.notice()


def keys_send(chat):
    """Enter sends, Shift+Enter and an Enter that ends a composition do not."""
    page = chat.page
    page.evaluate("$('text').focus()")
    page.write("Write")
    page.press("Enter", SHIFT)
    page.write("a function.")
    assert page.evaluate("$('text').value") == "Write\na function."
    page.evaluate("$('text').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', isComposing: true}))")
    assert page.evaluate("state.running") is None and chat.texts("user") == []
    page.press("Enter")
    page.wait(f"document.querySelectorAll('article.user').length === 1 && {IDLE}")
    assert chat.texts("user") == ["Write\na function."], chat.texts("user")
    assert page.evaluate("$('text').value") == "" and page.evaluate("document.activeElement.id") == "text"
    assert chat.ledger()["messages"][0] == {"role": "user", "content": "Write\na function."}
    assert chat.id().startswith("write-a-function-"), chat.id()
    assert page.evaluate("location.hash") == "#" + chat.id()


def turns_show_what_they_share(chat):
    """Each turn says what was shared, copied and new, its state rows, and its windows."""
    page = chat.page
    counted = [f"vllm:spec_decode_num_{what}_total" for what in ("drafts", "draft_tokens", "accepted_tokens")]
    before = [chat.metric(name) for name in counted]
    chat.set("limit", 60)
    chat.send("Another one.")
    heads = {head["state_row"] for head in chat.ledger()["heads"]}
    last = page.evaluate("figures.of(state.conversation.id, 1)")
    details = last["details"]
    assert details["attached_tokens"] == last["cachedTokens"] > 16, last
    assert details["shared_blocks"] == last["cachedTokens"] // 16, last
    assert details["copied_tokens"] == last["cachedTokens"] % 16, last
    assert details["own_state_row"] in heads and details["read_state_row"] != details["own_state_row"], (last, heads)
    shown = page.evaluate("[...document.querySelectorAll('.seed')].at(-1).innerText")
    assert f"{details['shared_blocks']} shared" in shown, shown
    assert f"{last['cachedTokens']} of {last['promptTokens']} prompt tokens reused" in shown, shown
    boxes = page.evaluate("[...document.querySelectorAll('.seed')].at(-1).querySelectorAll('.boxes.shared').length")
    assert boxes == 1, boxes
    windows = [tuple(window) for window in details["windows"]]
    assert windows and all(0 <= accepted <= drafts <= 3 for drafts, accepted in windows), windows
    accepted = sum(accepted for _, accepted in windows)
    withdrawn = sum(drafts for drafts, _ in windows) - accepted
    assert accepted > 0, windows
    metrics = [chat.metric(name) - value for name, value in zip(counted, before)]
    assert [len(windows), accepted + withdrawn, accepted] == metrics, (windows, metrics)
    assert f"{accepted} drafts accepted, {withdrawn} withdrawn" in shown, (shown, windows)
    filled = page.evaluate("[...document.querySelectorAll('.seed')].at(-1).querySelectorAll('i.accepted').length")
    assert filled == accepted, (filled, accepted)
    chat.set("limit", 24)


def markdown_is_rendered(chat):
    """Of each text the HTML that its nodes are, and nothing of an injection but text."""
    render = "(text => {const made = document.createElement('div'); made.append(markdown.render(text));" \
             "return made.innerHTML.replaceAll('<button type=\"button\" class=\"copy\" aria-label=\"Copy this code\">" \
             "Copy</button>', '')})"
    for text, html in MARKDOWN:
        shown = chat.page.evaluate(f"{render}({json.dumps(text)})")
        assert shown == html, f"{text!r}\n is {shown}\n not {html}"
    for text in INJECTIONS:
        for end in range(1, len(text) + 1):  # as it streams
            found = chat.page.evaluate(f"""(() => {{
                const made = document.createElement('div');
                made.append(markdown.render({json.dumps(text[:end])}));
                const all = [...made.querySelectorAll('*')];
                return all.some(one => /^(IMG|SCRIPT|SVG|IFRAME|STYLE|OBJECT|FORM|INPUT)$/i.test(one.nodeName)) ||
                    all.some(one => [...one.attributes].some(a => a.name.startsWith('on') || a.name === 'style')) ||
                    [...made.querySelectorAll('[href]')].some(a => !/^https?:/.test(a.href) ||
                        !a.rel.includes('noopener'));
            }})()""")
            assert not found, text[:end]


def nothing_typed_is_html(chat):
    text = '<img src=x onerror="window.pwned = 1"><b>bold</b>'
    chat.send(text)
    assert chat.texts("user")[-1] == text
    assert chat.page.evaluate("document.querySelectorAll('#turns img, #turns b').length") == 0
    assert chat.page.evaluate("window.pwned === undefined")
    refused = chat.page.evaluate("(() => { try { document.body.innerHTML += 'x'; return 'taken'; }"
                                 "catch (problem) { return problem.name; } })()")
    assert refused == "TypeError", "a page with Trusted Types takes no text for HTML"
    chat.page.problems.clear()  # that one


def regenerate(chat):
    """Another answer to the same message: one token of the prompt is computed."""
    before = chat.ledger()
    chat.set("temperature", 1)
    chat.set("seed", 7)
    chat.press("Regenerate")
    chat.page.wait(f"{IDLE} && state.conversation.messages.at(-1).content !== "
                   f"{json.dumps(before['messages'][-1]['content'])}")
    now = chat.ledger()
    assert now["num_turns"] == before["num_turns"] and now["messages"][:-1] == before["messages"][:-1]
    assert chat.texts("assistant")[-1].removeprefix("codeCopy").strip() == now["messages"][-1]["content"].strip()
    prompt = now["turns"][-1]["prompt_tokens"]
    assert chat.figures()[-1].startswith(f"{prompt - 1} of {prompt} prompt tokens reused"), chat.figures()
    chat.set("temperature", 0)
    chat.set("seed", "")


def edit(chat):
    """A changed message replaces what follows; as a fork, the conversation stays."""
    page, before = chat.page, chat.ledger()
    chat.press("Edit", 1)
    assert page.wait("document.activeElement.id === 'edit'")
    page.evaluate("$('edit').select()")
    page.write("A third one instead.")
    chat.press("Send as a fork")
    page.wait(f"{IDLE} && state.conversation.id !== {json.dumps(before['id'])} && "
              "state.conversation.messages.at(-2)?.content === 'A third one instead.'")
    assert chat.ledger(before["id"])["messages"] == before["messages"]
    forked = chat.ledger()
    assert forked["messages"][:2] == before["messages"][:2] and forked["num_turns"] == 2, forked
    assert forked["messages"][2]["content"] == "A third one instead."
    chat.press("Edit", 0)
    page.evaluate("$('edit').select()")
    page.write("Begin anew.")
    page.press("Escape")
    assert page.wait("$('edit') === null")
    assert chat.texts("user") == [m["content"] for m in forked["messages"][::2]]
    chat.press("Edit", 0)
    page.evaluate("$('edit').select()")
    page.write("Begin anew.")
    page.press("Enter")
    page.wait(f"{IDLE} && state.conversation.messages.length === 2")
    assert [m["role"] for m in chat.ledger()["messages"]] == ["user", "assistant"]
    assert chat.texts("user") == ["Begin anew."]


def fork(chat, conversation):
    """A fork shows at once what it shares; a rewind takes turns off."""
    page = chat.page
    page.evaluate(f"location.hash = {json.dumps('#' + conversation)}")
    page.wait(f"state.conversation.id === {json.dumps(conversation)}")
    num_messages = len(chat.ledger()["messages"])
    chat.press("Fork here", 0)
    page.wait(f"state.conversation.id !== {json.dumps(conversation)} && $('fork-note') !== null")
    to = chat.id()
    assert "-fork-" in to and chat.ledger()["num_turns"] == 1
    heads = chat.ledger()["heads"]
    num_blocks = len({block for head in heads for first, count in head["blocks"] for block in
                      range(first, first + count)})
    rows = len({head["state_row"] for head in heads})
    note = page.evaluate("$('fork-note').textContent")
    assert f"{num_blocks} of {num_blocks} KV blocks, {rows} of {rows} state row" in note, note
    page.wait(f"document.querySelector('section.states')?.dataset.conversation === {json.dumps(to)}")
    page.wait("document.querySelectorAll('section.states').length >= 2")
    shown = page.evaluate("[...document.querySelectorAll('section.states')].map(s => s.dataset.conversation)")
    assert shown[0] == to and conversation in shown, shown
    boxes = f"document.querySelectorAll('section.states[data-conversation={json.dumps(to)}] .boxes')"
    assert page.evaluate(f"[...{boxes}].every(run => run.classList.contains('shared'))")
    chat.send("And another.")
    page.wait(f"[...{boxes}].some(run => run.classList.contains('own'))")
    assert page.evaluate(f"[...{boxes}].some(run => run.classList.contains('shared'))")
    blocks = [{block for head in chat.ledger(one)["heads"] for first, count in head["blocks"]
               for block in range(first, first + count)} for one in (to, conversation)]
    note = f"Shared now: {len(blocks[0] & blocks[1])} of {len(blocks[0])} KV blocks"
    assert blocks[0] - blocks[1] and note in page.evaluate("$('fork-note').textContent"), (note, blocks)
    chat.press("Rewind to here", 0)
    page.wait("state.conversation.messages.length === 2")
    assert chat.ledger()["num_turns"] == 1
    assert len(chat.ledger(conversation)["messages"]) == num_messages


def stop(chat):
    """A stopped turn is withdrawn by the server; what was written comes back."""
    page, before = chat.page, chat.ledger()
    num_aborts = chat.metric("verbatim:aborts_total")
    page.evaluate("window.usual = sampling; sampling = () => ({max_tokens: 3500, ignore_eos: true})")
    page.evaluate("$('text').focus()")
    page.write("Write without an end.")
    page.press("Enter")
    page.wait("state.running?.answer.content.length > 0")
    os.kill(chat.server.process.pid, signal.SIGSTOP)  # it cannot come to its end meanwhile
    page.write("the next one")
    page.press("Escape")
    os.kill(chat.server.process.pid, signal.SIGCONT)
    page.wait(IDLE)
    assert "Stopped" in chat.notice()
    assert page.evaluate("$('text').value") == "Write without an end.\nthe next one"
    assert page.evaluate("document.querySelector('.withdrawn .body').textContent.length") > 0
    now = chat.ledger()
    assert (now["messages"], now["head_id"], now["busy"]) == (before["messages"], before["head_id"], False)
    assert chat.metric("verbatim:aborts_total") == num_aborts + 1
    page.evaluate("sampling = window.usual; $('text').value = ''; keepDraft()")
    chat.send("A short one.")
    chat.no_notice()
    assert page.evaluate("document.querySelector('.withdrawn')") is None


def lose_the_end(chat):
    """A stream that breaks off behind its last token: the ledger has the turn, and it is shown."""
    page, num_turns = chat.page, chat.ledger()["num_turns"]
    page.evaluate("window.usual = api.stream; api.stream = async (...all) => {"
                  "await window.usual(...all); throw new ServerError('broke off', 0, 'gone'); }")
    chat.send("Is it kept?")
    assert "whole answer" in chat.notice()
    now = chat.ledger()
    assert now["num_turns"] == num_turns + 1 and chat.texts("user")[-1] == now["messages"][-2]["content"]
    assert page.evaluate("$('text').value") == ""
    page.evaluate("api.stream = window.usual")


def reload(chat):
    """The conversation, what is half written, the list and the figures are there after a reload."""
    page = chat.page
    shown, figures, name = chat.texts("assistant"), chat.figures(), chat.id()
    page.evaluate("$('text').focus()")
    page.write("half a")
    page.reload()
    page.wait("state.conversation.id && document.querySelectorAll('#names li').length > 0")
    assert chat.id() == name and chat.texts("assistant") == shown and chat.figures() == figures
    assert page.evaluate("$('text').value") == "half a"
    current = "document.querySelector('#names a[aria-current]').textContent"
    assert page.evaluate(current).startswith(name)
    page.evaluate("$('text').value = ''; keepDraft()")


def system_prompt(chat):
    page = chat.page
    chat.press("New conversation")
    page.wait("state.conversation.id === null && document.activeElement.id === 'text'")
    page.click("#prompt summary")
    page.evaluate("$('system').focus()")
    page.write("You write the Python module queue.")
    chat.send("Write `def put(self, item)`.")
    system = {"role": "system", "content": "You write the Python module queue."}
    assert chat.ledger()["messages"][0] == system and len(chat.texts("user")) == 1
    chat.send("Now `def get(self)`.")
    assert [m["role"] for m in chat.ledger()["messages"]] == ["system"] + ["user", "assistant"] * 2
    page.reload()
    page.wait("state.conversation.system !== ''")
    assert page.evaluate("$('system').value") == system["content"]
    assert "queue" in page.evaluate("$('prompt-summary').textContent")


def list_of_conversations(chat):
    """Pages of the ledger's conversations; one is deleted by two presses."""
    page, num_there = chat.page, len(chat.server.ask("/v1/conversations?limit=100")[1]["data"])
    for i in range(25):
        asked = {"conversation_id": f"~{i:02}", "prompt": "def f", "max_tokens": 1}
        assert chat.server.ask("/v1/completions", asked)[0] == 200
    chat.press("New conversation")
    page.wait("document.querySelectorAll('#names li').length === 20 && !$('more').hidden")
    chat.press("More")
    page.wait(f"document.querySelectorAll('#names li').length === {min(num_there + 25, 40)}")
    page.evaluate("document.querySelector('#names a[href=\"#~00\"]').click()")
    page.wait("state.conversation.id === '~00'")
    assert "def f" in chat.texts("user")[0]
    remove = "document.querySelector('button[aria-label=\"Delete ~00\"]')"
    page.evaluate(f"{remove}.focus()")
    page.press("Enter")
    assert page.evaluate(f"{remove}.textContent") == "Sure?"
    assert chat.ledger("~00")["num_turns"] == 1
    page.press("Enter")
    page.wait(f"state.conversation.id === null && {remove} === null")
    assert chat.ledger("~00")["error"]["code"] == "unknown_conversation"


def errors(chat):
    """What goes wrong is said in words, and nothing typed is lost."""
    page = chat.page
    envelope = lambda code: json.dumps({"error": {"message": "m.", "type": "t", "param": None, "code": code}})
    cases = [(0, "", "does not answer"), (429, envelope("overloaded"), "busy"),
             (503, envelope("loading"), "being loaded"), (503, envelope("draining"), "about to end"),
             (401, envelope("invalid_api_key"), "API key"), (400, envelope("invalid_value"), "m."),
             (200, 'data: {"choices": [{"delta": {"content": "half"}}]}\n\n', "broke off"),
             (200, f"data: {envelope('failed')}\n\n", "m.")]
    for status, body, said in cases:
        page.answer("/v1/chat/completions", status, body, {"Retry-After": "3"})
        page.evaluate("$('text').focus()")
        page.write("Is it lost?")
        page.press("Enter")
        page.wait(IDLE + " && !$('notice').hidden")
        assert said in chat.notice(), (status, body, chat.notice())
        assert page.evaluate("$('notice').classList.contains('error') && $('text').value") == "Is it lost?"
        page.evaluate("$('text').value = ''")
    page.answer_as_the_server()
    page.problems = [problem for problem in page.problems if "Failed to load" not in problem]
    chat.set("limit", 4096)
    page.write("Too long.")
    page.press("Enter")
    page.wait(IDLE + " && !$('notice').hidden")
    assert "too long" in chat.notice() and page.evaluate("$('text').value") == "Too long.", chat.notice()
    chat.set("limit", 24)
    page.press("Enter")
    page.wait(f"document.querySelectorAll('article.assistant').length > 0 && {IDLE}")
    chat.no_notice()


def sizes(chat):
    """Nothing is wider than the page, on a desktop, a tablet and a phone; on the last two the panels open by keys."""
    page = chat.page
    for width, height, panels in ((1280, 800, []), (900, 800, ["states"]), (390, 844, ["list", "states"])):
        page.size(width, height)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} too wide at {width}"
        for panel in ("list", "states"):
            assert page.evaluate(f"$('{panel}').checkVisibility()") == (panel not in panels), (width, panel)
        for panel in panels:
            page.evaluate(f"$('show-{panel}').focus()")
            page.press("Enter")
            assert page.wait(f"$('{panel}').checkVisibility()")
            assert page.evaluate(f"$('show-{panel}').getAttribute('aria-expanded')") == "true"
            page.press("Escape")
            assert page.wait(f"!$('{panel}').checkVisibility()")
    page.size(1280, 800)


def names_of_fields(chat):
    """Everything that takes the focus has a name."""
    nameless = chat.page.evaluate("""[...document.querySelectorAll('button, input, textarea, select, a')]
        .filter(one => !(one.labels?.length || one.getAttribute('aria-label') || one.textContent.trim()))
        .map(one => one.outerHTML)""")
    assert nameless == [], nameless


def without_template(browser, folder):
    """A model that continues texts: the page says so, and its turns go on from each other."""
    bare = pathlib.Path(folder) / "bare"
    bare.mkdir()
    root = pathlib.Path(__file__).resolve().parents[3] / "server" / "models" / "tiny-python"
    for file in root.iterdir():
        if file.name != "tokenizer_config.json":
            (bare / file.name).symlink_to(file)
    config = json.loads((root / "tokenizer_config.json").read_text(encoding="utf-8"))
    config.pop("chat_template")
    (bare / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with Served(program(), "--model", str(bare)) as server:
        chat = Chat(browser, server)
        assert "no chat template" in chat.page.evaluate("$('empty').textContent")
        assert not chat.page.evaluate("$('prompt').checkVisibility()")
        chat.send("def first(a, b):")
        chat.send("\ndef second(a, b):")
        shown = chat.ledger()
        assert shown["messages"] is None and [t["prompt"] for t in shown["turns"]] == chat.texts("user"), shown
        assert [t["text"] for t in shown["turns"]] == chat.texts("assistant"), shown
        assert not chat.figures()[1].startswith("0 of"), chat.figures()
        chat.set("temperature", 1)
        chat.press("Regenerate")
        chat.page.wait(f"{IDLE} && state.conversation.messages.at(-1).content !== "
                       f"{json.dumps(shown['turns'][1]['text'])}")
        assert chat.ledger()["turns"][0]["text"] == shown["turns"][0]["text"]
        assert chat.page.problems == [], chat.page.problems


def play(browser, server, folder):
    chat = Chat(browser, server)
    keys_send(chat)
    turns_show_what_they_share(chat)
    markdown_is_rendered(chat)
    nothing_typed_is_html(chat)
    regenerate(chat)
    conversation = chat.id()
    edit(chat)
    fork(chat, conversation)
    stop(chat)
    lose_the_end(chat)
    reload(chat)
    sizes(chat)
    names_of_fields(chat)
    system_prompt(chat)
    list_of_conversations(chat)
    errors(chat)
    assert chat.page.problems == [], chat.page.problems
    without_template(browser, folder)


def take_pictures(browser, server, folder):
    """A conversation and its fork, at two sizes."""
    chat = Chat(browser, server)
    page = chat.page
    chat.set("limit", 90)
    page.click("#prompt summary")
    page.evaluate("$('system').focus()")
    page.write("You write the Python module queue.")
    page.click("#prompt summary")
    chat.send("Write `def put(self, item)`. Puts an item into the queue.")
    chat.send("Now `def get(self)`. Removes and returns an item.")
    chat.press("Fork here", 0)
    page.wait("$('fork-note') !== null")
    chat.send("Now `def empty(self)`. Returns True if the queue is empty.")
    page.wait("document.querySelectorAll('section.states').length === 2")
    page.evaluate("document.activeElement.blur()")
    page.wait("!document.querySelector('.running')")
    page.size(1280, 720)
    page.evaluate("$('scroll').scrollTop = $('scroll').scrollHeight")
    page.picture(folder / "page-1280.png")
    page.size(390, 844)
    page.dark(True)
    page.evaluate("$('scroll').scrollTop = $('scroll').scrollHeight")
    page.picture(folder / "page-390.png")


def main():
    chromium_path()
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--threads", "1", "--cache", "128MiB", "--ledger", str(pathlib.Path(folder) / "ledger"))
        with Served(program(), *DRAFTS, *flags, bare=True) as server, Browser() as browser:
            if sys.argv[2:3] == ["--pictures"]:
                take_pictures(browser, server, pathlib.Path(sys.argv[3]))
            else:
                play(browser, server, folder)


if __name__ == "__main__":
    main()
