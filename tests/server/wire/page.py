"""page.py PROGRAM: the page at / in headless Chromium: two turns, a fork, a rewind, the picture."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from served import Served, program, skip

# Runs in the page; the page's own functions do the work, its own elements say what came of it.
SCRIPT = """
(async () => {
  const wait = async (what, deed) => {
    for (let tries = 0; !deed(); ++tries) {
      if (tries > 600) throw new Error('never: ' + what + ': ' + document.body.innerText);
      await new Promise(go => setTimeout(go, 50));
    }
  };
  const notes = () => [...document.querySelectorAll('.assistant .note')].map(note => note.textContent);
  const press = (text, which) => [...document.querySelectorAll('.assistant button')]
      .filter(button => button.textContent === text)[which].click();
  const send = async (text, turns) => {
    $('text').value = text;
    $('send').click();
    await wait('turn ' + turns, () => notes().length === turns && notes()[turns - 1].includes('reused') && !running);
  };
  await wait('model', () => $('model').textContent === 'tiny-python');
  $('limit').value = 16;
  await send('Write a function.', 1);
  await send('Another one.', 2);
  const said = {notes: notes(), texts: [...document.querySelectorAll('#turns > div > span')].map(s => s.textContent)};
  if (!FORKS) return said;
  await wait('picture', () => document.querySelectorAll('#heads rect').length > 0);
  said.rows = document.querySelectorAll('#heads text').length;
  press('fork here', 0);
  await wait('fork', () => document.querySelectorAll('#names button').length === 2);
  await send('A third one.', 2);
  said.fork_notes = notes();
  await wait('two names', () => new Set([...document.querySelectorAll('#heads text')]
      .map(text => text.textContent.split(' ')[0])).size === 2);
  const blocks = [...document.querySelectorAll('#heads rect')].map(rect => rect.dataset.block);
  said.shared = blocks.length - new Set(blocks).size;
  press('rewind to here', 0);
  await wait('rewind', () => notes().length === 1);
  said.state = $('state').textContent;
  return said;
})()
"""


class Browser:
    """Chromium, controlled through a pipe."""

    def __init__(self, chromium, folder):
        to_read, to_write = os.pipe(), os.pipe()

        def connect():
            os.dup2(to_read[0], 3)
            os.dup2(to_write[1], 4)

        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
             "--disable-dev-shm-usage", f"--user-data-dir={folder}", "about:blank"],
            close_fds=False, preexec_fn=connect, stderr=subprocess.DEVNULL)
        os.close(to_read[0])
        os.close(to_write[1])
        self.to, self.back = os.fdopen(to_read[1], "wb"), os.fdopen(to_write[0], "rb")
        self.count = 0

    def tell(self, method, session=None, **arguments):
        self.count += 1
        message = {"id": self.count, "method": method, "params": arguments}
        if session:
            message["sessionId"] = session
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()
        while True:
            heard = b""
            while not heard.endswith(b"\0"):
                byte = self.back.read(1)
                assert byte, "chromium ended"
                heard += byte
            answer = json.loads(heard[:-1])
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]


def play(browser, base, forks):
    target = browser.tell("Target.createTarget", url=base + "/")["targetId"]
    session = browser.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    loaded = "document.readyState === 'complete' && typeof begin === 'function'"
    deadline = time.monotonic() + 60
    while not browser.tell("Runtime.evaluate", session, expression=loaded)["result"].get("value"):
        assert time.monotonic() < deadline, "the page never came"
        time.sleep(0.02)
    result = browser.tell("Runtime.evaluate", session, expression=SCRIPT.replace("FORKS", str(forks).lower()),
                          awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in result, result["exceptionDetails"]
    return result["result"]["value"]


def main():
    names = ("chromium", "chromium-browser", "chromium-headless-shell")
    chromium = next((found for found in map(shutil.which, names) if found), None)
    if chromium is None:
        skip("chromium is not installed: `apt-get install chromium-headless-shell` brings it")
    with Served(program()) as server, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        forks = server.ask("/v1/conversations/nobody")[1].get("error", {}).get("code") != "unknown_url"
        browser = Browser(chromium, folder)
        try:
            said = play(browser, server.base, forks)
        finally:
            browser.process.kill()
            browser.process.wait()
    print(json.dumps(said, indent=1))
    assert "reused 0 of" in said["notes"][0], said
    assert "reused 0 of" not in said["notes"][1], said
    assert all(said["texts"]), said
    if forks:
        assert said["rows"] > 0 and said["shared"] > 0 and said["state"] == "", said
        assert "reused 0 of" not in said["fork_notes"][1], said


if __name__ == "__main__":
    main()
