// turns.js: what is shown of the conversation: its messages, the turn that is being answered, and their figures.
'use strict';

// --- messages

// Of a text, or of parts as other clients send them.
function contentOf(message) {
  const {content} = message;
  if (typeof content === 'string') return content;
  return Array.isArray(content) ? content.map(part => part.text ?? `[${part.type}]`).join('\n') : '';
}

function fillBody(body, message) {
  body.replaceChildren();
  const text = contentOf(message);
  if (message.reasoning_content) {
    const reasoning = element('details', '', {class: 'reasoning'});
    reasoning.append(element('summary', 'Reasoning'), element('div', message.reasoning_content, {class: 'plain'}));
    reasoning.open = !text;
    body.append(reasoning);
  }
  const isWanted = $('form-of-answers').value === 'markdown';
  const isMarkdown = isWanted && message.role === 'assistant' && state.conversation.isChat;
  if (isMarkdown) body.append(markdown.render(text));
  else if (text) body.append(element('div', text, {class: 'plain'}));
  for (const call of message.tool_calls ?? []) {
    body.append(element('pre', `${call.function?.name}(${call.function?.arguments})`, {class: 'call'}));
  }
}

const ROLES = {user: 'You', assistant: 'Model', tool: 'Tool', system: 'System', developer: 'System'};

function messageBox(message) {
  const role = ROLES[message.role] ? message.role : 'tool';
  const box = element('article', '', {class: role});
  box.append(element('h2', ROLES[role]));
  const body = element('div', '', {class: 'body'});
  box.append(body);
  fillBody(body, message);
  return {box, body};
}

function userActions(index) {
  const actions = element('div', '', {class: 'actions'});
  actions.append(button('Edit', () => {
    state.editing = {message: index, text: contentOf(state.conversation.messages[index])};
    show();
    $('edit').focus();
  }));
  return actions;
}

function answerActions(index, turn) {
  const {conversation} = state;
  const isLast = index === conversation.messages.length - 1;
  const actions = element('div', '', {class: 'actions'});
  actions.append(button('Copy', event => copy(event.target, contentOf(conversation.messages[index]))));
  if (isLast && conversation.messages[index - 1]?.role === 'user') actions.append(button('Regenerate', regenerate));
  actions.append(button('Fork here', () => fork(turn + 1)));
  if (!isLast) actions.append(button('Rewind to here', () => rewind(turn + 1)));
  return actions;
}

function editBox({message, text}) {
  const form = element('form', '', {class: 'edit'});
  const area = element('textarea', '', {id: 'edit', 'aria-label': 'Changed message'});
  area.value = text;
  area.addEventListener('input', () => { state.editing.text = area.value; grow(area); });
  const send = asFork => {
    if (area.value.trim()) sendEdited(message, area.value, asFork);
  };
  const cancel = () => {
    state.editing = null;
    show();
    $('text').focus();
  };
  area.addEventListener('keydown', event => {
    if (isSendingKey(event)) {
      event.preventDefault();
      send(false);
    } else if (event.key === 'Escape') {
      event.stopPropagation();
      cancel();
    }
  });
  const actions = element('div', '', {class: 'actions'});
  actions.append(
      button('Send', () => send(false), {class: 'main', title: 'What follows the message is replaced'}),
      button('Send as a fork', () => send(true), {title: 'This conversation stays as it is'}),
      button('Cancel', cancel));
  form.append(area, actions);
  form.addEventListener('submit', event => event.preventDefault());
  requestAnimationFrame(() => grow(area));
  return form;
}

function forkNote() {
  const origin = origins.of(state.conversation.id);
  const from = origin && state.family.find(({id}) => id === origin.from);
  if (!from) return null;
  const {blocks, sharedBlocks, rows, sharedRows} = picture.sharing(state.conversation.heads, from.heads);
  const note = element('p', '', {class: 'fork-note', id: 'fork-note'});
  note.append('Forked from ', element('a', origin.from, {href: '#' + encodeURIComponent(origin.from)}),
      ` after ${picture.count(origin.numTurns, 'turn')}. Shared now: ${sharedBlocks} of ` +
          `${picture.count(blocks, 'KV block')}, ${sharedRows} of ${picture.count(rows, 'state row')}.`);
  return {note, after: origin.numTurns};
}

// What is known of a turn: from its stream, else from the ledger.
function turnFigures(index) {
  const {conversation} = state;
  const ledger = conversation.turns[index];
  const seen = figures.of(conversation.id, index);
  if (seen && seen.promptTokens === ledger.prompt_tokens) return seen;
  return {promptTokens: ledger.prompt_tokens, completionTokens: ledger.completion_tokens};
}

function show() {
  const {conversation, running} = state;
  const shown = [];
  const note = forkNote();
  const messages = running ? running.messages.slice(0, -1) : conversation.messages;
  messages.forEach((message, index) => {
    if (index === 0 && message.role === 'system') return;
    const {box} = messageBox(message);
    if (!running && state.editing?.message === index) box.replaceChildren(box.firstChild, editBox(state.editing));
    const turn = running ? -1 : conversation.turnOf(index);
    const isEdited = state.editing?.message === index;
    if (!running && message.role === 'user' && !isEdited) box.append(userActions(index));
    if (turn >= 0) box.append(picture.ofTurn(turnFigures(turn)), answerActions(index, turn));
    shown.push(box);
    if (note && turn + 1 === note.after) shown.push(note.note);
  });
  if (running) {
    running.user = messageBox(running.messages.at(-1)).box;
    running.shown = messageBox(running.answer);
    running.shown.box.classList.add('running');
    shown.push(running.user, running.shown.box);
  }
  if (state.withdrawn && !running) shown.push(withdrawnBox(state.withdrawn));
  $('turns').replaceChildren(...shown);
  if (running) showAnswer();
  showFrame();
}

function withdrawnBox({text, why}) {
  const {box} = messageBox({role: 'assistant', content: text});
  box.classList.add('withdrawn');
  box.append(element('p', why, {class: 'figures'}));
  return box;
}

function showFrame() {
  const {conversation, running} = state;
  $('name').textContent = conversation.id ?? 'New conversation';
  document.title = conversation.id ? `${conversation.id} · Verbatim` : 'Verbatim';
  $('prompt').hidden = !conversation.isChat;
  $('system').disabled = running !== null;
  $('prompt-summary').textContent = $('system').value.trim().split('\n')[0] || 'none';
  $('send').hidden = running !== null;
  $('stop').hidden = running === null;
  $('turns').setAttribute('aria-busy', String(running !== null));
  const isEmpty = conversation.messages.length === 0 && !running && !state.withdrawn;
  $('empty').hidden = !isEmpty;
  $('empty').textContent = conversation.isChat ?
      'Enter sends, Shift+Enter begins a new line. Below each answer is what it shares with the states in the cache.' :
      'This model has no chat template, so it continues texts: what you write goes on from what stands here, without ' +
          'roles and without a system prompt.';
  $('text').placeholder = conversation.isChat ? 'Message' : 'Text that is continued';
}

// The running answer alone, as it comes.
function showAnswer() {
  const {running} = state;
  const isAtEnd = $('scroll').scrollHeight - $('scroll').scrollTop - $('scroll').clientHeight < 60;
  fillBody(running.shown.body, running.answer);
  running.shown.box.querySelector('.seed')?.remove();
  if (running.turn.promptTokens) running.shown.box.append(picture.ofTurn(running.turn));
  if (isAtEnd) $('scroll').scrollTop = $('scroll').scrollHeight;
}

async function copy(pressed, text) {
  const label = pressed.textContent;
  try {
    await navigator.clipboard.writeText(text);
    pressed.textContent = 'Copied';
  } catch {
    pressed.textContent = 'Not allowed';  // by the browser: the origin is no secure one
  }
  setTimeout(() => { pressed.textContent = label; }, 1500);
}
