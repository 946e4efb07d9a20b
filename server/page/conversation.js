// conversation.js: a conversation as the ledger has it, and what is asked of the server to go on, to answer again and
// to change a message. No DOM.
'use strict';

// The figures of turns that this tab has seen: the ledger does not keep them.
const figures = (() => {
  const store = JSON.parse(sessionStorage.getItem('figures') ?? '{}');
  const save = () => {
    try {
      sessionStorage.setItem('figures', JSON.stringify(store));
    } catch {
      sessionStorage.removeItem('figures');  // it is full: a reload shows what the ledger has
    }
  };
  return {
    of: (id, turn) => store[id]?.[turn] ?? null,
    put: (id, turn, one) => {
      store[id] = [...(store[id] ?? []).slice(0, turn), one];
      save();
    },
    fork: (from, to, numTurns) => {
      store[to] = (store[from] ?? []).slice(0, numTurns);
      save();
    },
    forget: id => {
      delete store[id];
      save();
    },
  };
})();

// Which conversation was forked from which one, and where: {fork: {from, numTurns}}.
const origins = (() => {
  const store = JSON.parse(localStorage.getItem('verbatim.origins') ?? '{}');
  const save = () => localStorage.setItem('verbatim.origins', JSON.stringify(store));
  return {
    of: id => store[id] ?? null,
    put: (id, from, numTurns) => {
      store[id] = {from, numTurns};
      save();
    },
    forget: id => {
      delete store[id];
      save();
    },
    // Those that may share states with it: where it is from, its forks, and its siblings.
    family: id => {
      const from = store[id]?.from;
      const forks = Object.keys(store).filter(one => store[one].from === id || (from && store[one].from === from));
      return [...new Set([from, ...forks])].filter(one => one && one !== id).slice(0, 6);
    },
  };
})();

class Conversation {
  // `isChat`: of a new one, whether the model has a chat template.
  constructor(isChat) {
    this.id = null;        // null: nothing was sent yet
    this.isChat = isChat;  // false: turns are texts that go on from each other, without roles
    this.messages = [];    // {role, content, ...}; of texts the roles are the page's own
    this.turns = [];       // {end: messages up to its answer, ...} of the ledger
    this.head = null;      // the name of what is committed
    this.heads = [];       // the states that the cache keeps
  }

  // As the ledger has it; null: it has none of this name.
  static async load(id, isChat) {
    const shown = await api.show(id, true);
    if (!shown) return null;
    const loaded = new Conversation(shown.messages !== null);
    loaded.id = id;
    loaded.head = shown.head_id;
    loaded.heads = shown.heads;
    loaded.isBusy = shown.busy;
    if (shown.messages === null) {
      loaded.messages = shown.turns.flatMap(
          turn => [{role: 'user', content: turn.prompt}, {role: 'assistant', content: turn.text}]);
      loaded.turns = shown.turns.map((turn, i) => ({...turn, end: 2 * i + 2}));
    } else {
      loaded.messages = shown.messages;
      loaded.turns = shown.turns.map(turn => ({...turn, end: turn.num_messages}));
    }
    return loaded;
  }

  get system() {
    const first = this.messages[0];
    return this.isChat && first?.role === 'system' && typeof first.content === 'string' ? first.content : '';
  }

  // Which turn's answer the message is, from 0; -1: none's.
  turnOf(message) { return this.turns.findIndex(turn => turn.end === message + 1); }
  numTurnsBefore(message) { return this.turns.filter(turn => turn.end <= message).length; }

  // The messages before `count`, with the system prompt as it is wanted now.
  history(count, system) {
    const kept = this.messages.slice(0, count);
    if (!this.isChat) return kept;
    if (kept[0]?.role === 'system' && typeof kept[0].content === 'string') kept.shift();
    return system.trim() ? [{role: 'system', content: system}, ...kept] : kept;
  }

  // What is sent so that `messages` are answered in this conversation.
  request(messages, sampling) {
    const body = {conversation_id: this.id, return_turn_details: true, ...sampling};
    if (this.isChat) return {path: '/v1/chat/completions', body: {...body, messages}};
    return {path: '/v1/completions', body: {...body, prompt: messages.map(message => message.content).join('')}};
  }
}

// A name that says what it is about: of the first words, and four characters by chance.
function newName(text) {
  const words = text.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '').slice(0, 28).replace(/-$/, '');
  const chance = [...crypto.getRandomValues(new Uint8Array(4))].map(byte => (byte % 36).toString(36)).join('');
  return (words || 'conversation') + '-' + chance;
}
const forkName = id => newName(id.replace(/(-fork)?-[a-z0-9]{4}$/, '').slice(0, 23) + '-fork');
