// api.js: calls of the server. What goes wrong comes as a ServerError, whose message is a sentence for the reader.
'use strict';

class ServerError extends Error {
  // `status`: of HTTP, 0 where there was no answer. `code`: the server's own, or 'gone'.
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const api = (() => {
  let key = '';

  const gone = () =>
      new ServerError('The server does not answer. What you typed is kept: try again when it is back.', 0, 'gone');

  const SENTENCES = {
    invalid_api_key: () => 'This server asks for an API key: enter it under Settings.',
    loading: () => 'The model is still being loaded. Try again in a moment.',
    draining: () => 'The server is about to end, and takes nothing more.',
    ledger_unavailable: said => `The ledger cannot be used, so nothing would be kept: ${said}`,
    busy: () => 'Another turn of this conversation is running. Try again when it is over.',
    unknown_conversation: () => 'The ledger has no such conversation.',
    context_length_exceeded: said => `The conversation is too long for this model: ${said}`,
    parent_mismatch: () => 'The conversation has moved on meanwhile: what the ledger has now is shown.',
    answer_changed: () => 'The server had to start again in this answer, and nothing of it is kept. Send it again.',
  };

  function sentence(status, code, said, retryAfter) {
    const known = SENTENCES[code];
    if (known) return known(said);
    const when = retryAfter ? ` in ${retryAfter} s` : '';
    if (status === 429) return `The server is busy, and its queue is full. Try again${when}.`;
    if (status === 503) return `The server cannot answer now: ${said} Try again${when}.`;
    return said || `The server answered with status ${status}.`;
  }

  // The answer of a request that succeeded.
  async function call(method, path, body, signal) {
    const headers = {};
    if (body) headers['Content-Type'] = 'application/json';
    if (key) headers.Authorization = 'Bearer ' + key;
    let answer;
    try {
      answer = await fetch(path, {method, headers, body: body && JSON.stringify(body), signal});
    } catch (problem) {
      throw problem.name === 'AbortError' ? problem : gone();
    }
    if (answer.ok) return answer;
    const error = (await answer.json().catch(() => null))?.error ?? {};
    const text = sentence(answer.status, error.code, error.message ?? '', answer.headers.get('Retry-After'));
    throw new ServerError(text, answer.status, error.code);
  }

  const json = async (method, path, body) => (await call(method, path, body)).json();

  // The data of server-sent events, as they come.
  async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (problem) {
        throw problem.name === 'AbortError' ? problem : gone();
      }
      if (part.done) return;
      const lines = (rest + part.value).split('\n');
      rest = lines.pop();
      for (const line of lines) if (line.startsWith('data: ')) yield line.slice(6);
    }
  }

  const pause = milliseconds => new Promise(go => setTimeout(go, milliseconds));

  // A turn that was stopped may hold its conversation for another moment.
  async function callWhenFree(path, body, signal) {
    for (let tries = 0;; ++tries) {
      try {
        return await call('POST', path, body, signal);
      } catch (problem) {
        if (problem.code !== 'busy' || tries === 20 || signal.aborted) throw problem;
        await pause(100);
      }
    }
  }

  // Streams an answer: `take` gets each event's {choice, usage}. Returns what came last of the choice, with head_id.
  async function stream(path, body, signal, take) {
    const asked = {...body, stream: true, stream_options: {include_usage: true, continuous_usage_stats: true}};
    const response = await callWhenFree(path, asked, signal);
    let end = null;
    for await (const data of events(response.body)) {
      if (data === '[DONE]') return end;
      const event = JSON.parse(data);
      if (event.error) {
        const {code, message} = event.error;
        throw new ServerError(sentence(500, code, message), 500, code);
      }
      const choice = event.choices[0];
      if (choice?.finish_reason) end = {finish: choice.finish_reason, head: event.head_id};
      take({choice, usage: event.usage});
    }
    throw new ServerError('The answer broke off, and nothing of it is kept. What you typed is: try again.', 0, 'gone');
  }

  const conversationPath = id => '/v1/conversations/' + encodeURIComponent(id);

  return {
    stream,
    useKey: text => { key = text; },
    models: () => json('GET', '/v1/models'),
    tokenizerInfo: () => json('GET', '/tokenizer_info'),
    // A page of the ledger's conversations behind `after`.
    list: after => json('GET', '/v1/conversations?limit=20' + (after ? '&after=' + encodeURIComponent(after) : '')),
    // What the ledger has of it, and the states that the cache keeps; null: nothing.
    show: async (id, hasContent = false) => {
      try {
        return await json('GET', conversationPath(id) + (hasContent ? '?content=true' : ''));
      } catch (problem) {
        if (problem.code === 'unknown_conversation') return null;
        throw problem;
      }
    },
    fork: (id, to, numTurns) => json('POST', conversationPath(id) + '/fork', {to, num_turns: numTurns}),
    rewind: (id, numTurns) => json('POST', conversationPath(id) + '/rewind', {num_turns: numTurns}),
    remove: id => json('DELETE', conversationPath(id)),
  };
})();
