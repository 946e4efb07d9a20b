// page.js: what keys and buttons do: turns, conversations, panels.
'use strict';

const $ = id => document.getElementById(id);

const state = {
  isChat: true,                         // the model has a chat template
  conversation: new Conversation(true),
  family: [],                           // [{id, heads}]: conversations that may share states with it
  running: null,                        // {abort, messages, answer, turn}: the turn that is being answered
  withdrawn: null,                      // {text, why}: an answer of which nothing is kept
  editing: null,                        // {message, text}
  numPages: 1,                          // of the list
  numOpened: 0,                         // conversations, so far
};

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function button(text, act, attributes = {}) {
  const made = element('button', text, {type: 'button', ...attributes});
  made.addEventListener('click', act);
  return made;
}

// --- what is said to the reader

function say(text, isError = false) {
  $('notice').textContent = text;
  $('notice').hidden = !text;
  $('notice').classList.toggle('error', isError);
}

// Does it, and says what went wrong.
async function attempt(deed) {
  say('');
  try {
    return await deed();
  } catch (problem) {
    say(problem.message, true);
    return undefined;
  }
}

// --- drafts: what is typed outlives the page

const draftKey = () => 'draft:' + (state.conversation.id ?? '');

function keepDraft() {
  const system = $('system').value === state.conversation.system ? null : $('system').value;
  sessionStorage.setItem(draftKey(), JSON.stringify({text: $('text').value, system}));
}

function restoreDraft() {
  const draft = JSON.parse(sessionStorage.getItem(draftKey()) ?? '{}');
  $('text').value = draft.text ?? '';
  $('system').value = draft.system ?? state.conversation.system;
  grow($('text'));
}

function grow(area) {
  area.style.height = 'auto';
  area.style.height = area.scrollHeight + 2 + 'px';
}

// --- turns

function sampling() {
  const settings = {max_tokens: Number($('limit').value) || 256, temperature: Number($('temperature').value)};
  if ($('seed').value !== '') settings.seed = Number($('seed').value);
  return settings;
}

// What a part of the stream says, into the running turn.
function take(running, {choice, usage}) {
  const {answer, turn} = running;
  const delta = choice?.delta ?? {content: choice?.text};
  answer.content += delta.content ?? '';
  if (delta.reasoning_content) answer.reasoning_content = (answer.reasoning_content ?? '') + delta.reasoning_content;
  for (const call of delta.tool_calls ?? []) {
    answer.tool_calls ??= [];
    answer.tool_calls[call.index] ??= {function: {name: call.function.name, arguments: ''}};
    answer.tool_calls[call.index].function.arguments += call.function.arguments ?? '';
  }
  if (choice?.turn_details) {
    const windows = [...(turn.details?.windows ?? []), ...choice.turn_details.windows];
    turn.details = {...choice.turn_details, windows};
  }
  if (usage) {
    turn.promptTokens = usage.prompt_tokens;
    turn.completionTokens = usage.completion_tokens;
    turn.cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? turn.cachedTokens;
  }
  turn.seconds = (performance.now() - running.began) / 1000;
  running.timer ??= setTimeout(() => {
    running.timer = null;
    if (state.running === running) showAnswer();
  }, 40);
}

// Lets the model answer `messages` in the conversation. True: the ledger has the turn. Else it has what it had.
async function answer(messages) {
  const {conversation} = state;
  const isNew = conversation.id === null;
  if (isNew) conversation.id = newName(contentOf(messages.at(-1)));
  const running = {
    abort: new AbortController(), messages, answer: {role: 'assistant', content: ''}, began: performance.now(),
    turn: {details: null, promptTokens: 0, completionTokens: 0},
  };
  Object.assign(state, {running, withdrawn: null});
  $('status').textContent = 'The model answers.';
  show();
  $('scroll').scrollTop = $('scroll').scrollHeight;
  let isKept = true;
  try {
    const {path, body} = conversation.request(messages, sampling());
    await api.stream(path, body, running.abort.signal, part => take(running, part));
    await reload();
  } catch (problem) {
    isKept = await withdraw(running, problem);
  }
  if (isKept) {
    setHash(conversation.id);
    figures.put(conversation.id, state.conversation.turns.length - 1, running.turn);
    $('status').textContent = 'The answer: ' + running.answer.content;
  } else if (isNew) {
    conversation.id = null;
  }
  clearTimeout(running.timer);
  state.running = null;
  show();
  $('scroll').scrollTop = $('scroll').scrollHeight;
  refresh();
  return isKept;
}

// What was stopped or broke off. The ledger says whether the turn is kept all the same, as one whose last bytes alone
// were lost is.
async function withdraw(running, problem) {
  const {head} = state.conversation;
  const isReached = await reload().then(() => true, () => false);  // else what was there before stays
  if (isReached && state.conversation.head !== head) {
    say(problem.name === 'AbortError' ? '' : 'The stream broke off. The ledger has the whole answer, and it is shown.');
    return true;
  }
  const isStopped = problem.name === 'AbortError';
  const why = isStopped ? 'Stopped: the server has withdrawn this answer, and the conversation is as it was before.' :
      'Nothing of this answer is kept.';
  if (running.answer.content) state.withdrawn = {text: running.answer.content, why};
  say(isStopped ? 'Stopped. Nothing of the answer is kept; your message is where you wrote it.' : problem.message,
      !isStopped);
  $('status').textContent = isStopped ? 'Stopped.' : '';
  return false;
}

// The conversation as the ledger has it now, if it has it.
async function reload() {
  const {id} = state.conversation;
  for (let tries = 0;; ++tries) {
    const loaded = await Conversation.load(id);
    if (loaded) state.conversation = loaded;
    if (!loaded?.isBusy || tries === 20) return;
    await new Promise(go => setTimeout(go, 100));  // a turn that was stopped is about to end
  }
}

async function send() {
  const text = $('text').value;
  if (!text.trim() || state.running) return;
  say('');
  const {conversation} = state;
  const messages = conversation.history(conversation.messages.length, $('system').value);
  const key = draftKey();
  $('text').value = '';
  grow($('text'));
  if (await answer([...messages, {role: 'user', content: text}])) {
    sessionStorage.removeItem(key);
  } else {
    $('text').value = [text, $('text').value].filter(Boolean).join('\n');
    grow($('text'));
  }
  keepDraft();
}

function regenerate() {
  const {conversation} = state;
  say('');
  return answer(conversation.history(conversation.messages.length - 1, $('system').value));
}

// The message and what follows it are replaced; as a fork, in another conversation.
async function sendEdited(index, text, asFork) {
  const {conversation, editing} = state;
  const changed = {...conversation.messages[index], content: text};
  const messages = [...conversation.history(index, $('system').value), changed];
  const numTurns = conversation.numTurnsBefore(index);
  state.editing = null;
  if (asFork && numTurns > 0 && !await attempt(() => forkTo(numTurns).then(() => true))) {
    state.editing = editing;
    return show();
  }
  if (asFork && numTurns === 0) state.conversation = new Conversation(conversation.isChat);
  say('');
  if (await answer(messages)) return;
  if (asFork && numTurns === 0) state.conversation = conversation;
  if (state.conversation.messages[index]?.role === 'user') {
    state.editing = editing;  // nothing typed is lost
    show();
  } else {
    $('text').value = text;
    grow($('text'));
  }
}

async function forkTo(numTurns) {
  const from = state.conversation.id;
  const to = forkName(from);
  await api.fork(from, to, numTurns);
  origins.put(to, from, numTurns);
  figures.fork(from, to, numTurns);
  await open(to);
}

const fork = numTurns => attempt(async () => {
  await forkTo(numTurns);
  $('text').focus();
});

const rewind = numTurns => attempt(async () => {
  await api.rewind(state.conversation.id, numTurns);
  await reload();
  state.withdrawn = null;
  show();
  refresh();
});

// --- conversations

const hashed = () => {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return '';
  }
};

function setHash(id) {
  if (hashed() !== (id ?? '')) history.pushState(null, '', id ? '#' + encodeURIComponent(id) : location.pathname);
}

// Shows what the ledger has of `id`; '': a new conversation. What is shown changes at once, when all of it is there.
async function open(id) {
  const place = ++state.numOpened;
  const loaded = id && !state.running ? await Conversation.load(id) : null;
  const family = await familyOf(loaded);
  if (place !== state.numOpened) return undefined;  // another one was opened meanwhile
  if (state.running) {
    say('An answer is coming: stop it before you leave the conversation.');
    return setHash(state.conversation.id);
  }
  if (id && !loaded) say(`The ledger has no conversation ${id}: this is a new one.`);
  if (loaded?.isBusy) say('Another client has a turn in this conversation now.');
  keepDraft();
  const conversation = loaded ?? new Conversation(state.isChat);
  Object.assign(state, {conversation, family, withdrawn: null, editing: null});
  setHash(conversation.id);
  restoreDraft();
  closePanels();
  show();
  $('scroll').scrollTop = $('scroll').scrollHeight;
  return refresh();
}

async function familyOf(conversation) {
  if (!conversation?.id) return [];
  const shown = await Promise.all(origins.family(conversation.id).map(id => api.show(id)));
  return shown.filter(Boolean).map(({id, heads}) => ({id, heads}));
}

function nameRow(id) {
  const made = element('li');
  made.dataset.id = id;
  const link = element('a', id, {href: '#' + encodeURIComponent(id)});
  link.append(element('span'));
  const remove = button('Delete', () => {
    if (!remove.classList.toggle('sure')) return removeConversation(id);
    remove.textContent = 'Sure?';
    return undefined;
  }, {'aria-label': `Delete ${id}`});
  remove.addEventListener('blur', () => {
    remove.classList.remove('sure');
    remove.textContent = 'Delete';
  });
  made.append(link, remove);
  return made;
}

function fillRow(row, {id, num_turns: numTurns, num_tokens: numTokens}) {
  const link = row.querySelector('a');
  if (id === state.conversation.id) link.setAttribute('aria-current', 'page');
  else link.removeAttribute('aria-current');
  link.lastChild.textContent = `${picture.count(numTurns, 'turn')}, ${picture.count(numTokens, 'token')}`;
}

const removeConversation = id => attempt(async () => {
  await api.remove(id);
  origins.forget(id);
  figures.forget(id);
  sessionStorage.removeItem('draft:' + id);
  if (id === state.conversation.id) return open('');
  return refresh();
});

// A conversation's row stays, with the focus that is in it.
function showNames(conversations) {
  const shown = new Map([...$('names').children].map(row => [row.dataset.id, row]));
  const rows = conversations.map(one => {
    const row = shown.get(one.id) ?? nameRow(one.id);
    fillRow(row, one);
    return row;
  });
  if (rows.length === shown.size && rows.every((row, i) => row === $('names').children[i])) return;
  const focused = document.activeElement;
  $('names').replaceChildren(...rows);
  if (focused !== document.activeElement && focused.isConnected) focused.focus();
}

async function showList() {
  const rows = [];
  let after = null;
  let hasMore = true;
  for (let page = 0; page < state.numPages && hasMore; ++page) {
    const list = await api.list(after);
    rows.push(...list.data);
    after = list.last_id;
    hasMore = list.has_more;
  }
  const {conversation} = state;
  if (conversation.turns.length > 0 && !rows.some(({id}) => id === conversation.id)) {
    const last = conversation.turns.at(-1);
    const numTokens = last.prompt_tokens + last.completion_tokens;
    rows.unshift({id: conversation.id, num_turns: conversation.turns.length, num_tokens: numTokens});
  }
  showNames(rows);
  $('more').hidden = !hasMore;
}

// The list, and the states of the conversation and its family.
async function refresh() {
  const {conversation} = state;
  let family;
  try {
    [, family] = await Promise.all([showList(), familyOf(conversation)]);
  } catch {
    return;  // what was asked for says it
  }
  if (conversation !== state.conversation) return;
  state.family = family;
  const all = conversation.turns.length > 0 ? [{id: conversation.id, heads: conversation.heads}, ...family] : family;
  $('heads').replaceChildren(picture.ofStates(all));
  const note = forkNote();
  if (note) $('fork-note')?.replaceWith(note.note);
}

// --- keys, buttons, panels

// Enter, but not where it ends a composition of characters.
const isSendingKey = event =>
    event.key === 'Enter' && !event.shiftKey && !event.isComposing && event.keyCode !== 229;

function togglePanel(id) {
  const wasOpen = $(id).classList.contains('open');
  closePanels();
  if (wasOpen) return;
  $(id).classList.add('open');
  $('show-' + id).setAttribute('aria-expanded', 'true');
  $(id).querySelector('button, a')?.focus();
}

function closePanels() {
  for (const id of ['list', 'states']) {
    $(id).classList.remove('open');
    $('show-' + id).setAttribute('aria-expanded', 'false');
  }
}

function keepSettings() {
  const values = Object.fromEntries(['limit', 'temperature', 'seed', 'form-of-answers'].map(id => [id, $(id).value]));
  localStorage.setItem('verbatim.settings', JSON.stringify(values));
  sessionStorage.setItem('key', $('key').value);
}

function restoreSettings() {
  const values = JSON.parse(localStorage.getItem('verbatim.settings') ?? '{}');
  for (const [id, value] of Object.entries(values)) $(id).value = value;
  $('key').value = sessionStorage.getItem('key') ?? '';
  api.useKey($('key').value);
}

async function begin() {
  try {
    const model = (await api.models()).data[0].id;
    state.isChat = (await api.tokenizerInfo()).chat_template !== null;
    $('model').textContent = model;  // what is shown from here on knows both
    say('');
    await open(hashed());
  } catch (problem) {
    say(problem.message, true);
    if (problem.code === 'loading') setTimeout(begin, 500);
  }
}

$('form').addEventListener('submit', event => {
  event.preventDefault();
  send();
});
$('text').addEventListener('keydown', event => {
  if (!isSendingKey(event)) return;
  event.preventDefault();
  send();
});
$('text').addEventListener('input', () => {
  grow($('text'));
  keepDraft();
});
$('system').addEventListener('input', () => {
  keepDraft();
  showFrame();
});
$('stop').addEventListener('click', () => {
  state.running?.abort.abort();
  $('text').focus();
});
document.addEventListener('keydown', event => {
  if (event.key !== 'Escape' || event.isComposing) return;
  const isOpen = document.querySelector('nav.open, aside.open') !== null;
  if (isOpen) closePanels();
  else state.running?.abort.abort();
});
document.addEventListener('click', event => {
  if (!event.target.matches('button.copy')) return;
  copy(event.target, event.target.closest('figure').querySelector('pre').textContent);
});
$('new').addEventListener('click', () => attempt(async () => {
  await open('');
  $('text').focus();
}));
$('more').addEventListener('click', () => {
  ++state.numPages;
  attempt(showList);
});
for (const id of ['list', 'states']) $('show-' + id).addEventListener('click', () => togglePanel(id));
$('settings').addEventListener('change', keepSettings);
$('form-of-answers').addEventListener('change', show);
$('key').addEventListener('change', () => {
  api.useKey($('key').value);
  begin();
});
addEventListener('hashchange', () => {
  if (hashed() !== (state.conversation.id ?? '')) attempt(() => open(hashed()));
});

restoreSettings();
begin();
