// picture.js: the picture of docs/cache.md, live: what a turn shares with the head that it goes on from, what it copies
// and what is its own; its state rows; its windows; and the states that the cache keeps of a conversation.
'use strict';

const picture = (() => {
  function element(tag, text, attributes = {}) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  const count = (number, one, many = one + 's') => `${number.toLocaleString('en')} ${number === 1 ? one : many}`;

  // `length` boxes in a row as one element: their borders are a pattern of its style.
  function boxes(length, kind, title) {
    const made = element('span', '', {class: 'boxes ' + kind, title});
    made.style.setProperty('--boxes', length);
    return made;
  }

  // --- one turn

  // {shared, copied, own}: blocks, of which `copied` (0 or 1) begins with the copy of a tail.
  function blocksOf(turn) {
    const {details, promptTokens, completionTokens} = turn;
    const resident = Math.max(promptTokens + Math.max(completionTokens - 1, 0), details.attached_tokens);
    const all = details.block_size > 0 ? Math.ceil(resident / details.block_size) : 0;
    const copied = details.copied_tokens > 0 ? 1 : 0;
    return {shared: details.shared_blocks, copied, own: Math.max(all - details.shared_blocks - copied, 0)};
  }

  // Drafts of its windows, and what came of them.
  function windowSums(windows) {
    const sums = {windows: windows.length, accepted: 0, withdrawn: 0};
    for (const [drafts, accepted] of windows) {
      sums.accepted += accepted;
      sums.withdrawn += drafts - accepted;
    }
    return sums;
  }

  function blockStrip(turn) {
    const {details} = turn;
    const {shared, copied, own} = blocksOf(turn);
    const strip = element('span', '', {class: 'strip', role: 'img'});
    strip.setAttribute('aria-label', `KV blocks: ${shared} shared, ${copied} with a copied tail, ${own} new`);
    strip.style.setProperty('--boxes', shared + copied + own);
    if (shared) strip.append(boxes(shared, 'shared', `${count(shared, 'block')} shared by reference`));
    if (copied) {
      const tail = boxes(1, 'copied', `a block of its own: ${count(details.copied_tokens, 'token')} copied into it`);
      tail.style.setProperty('--copied', (100 * details.copied_tokens) / details.block_size + '%');
      strip.append(tail);
    }
    if (own) strip.append(boxes(own, 'own', `${count(own, 'block')} that this turn computed`));
    return strip;
  }

  const row = number => element('span', String(number), {class: 'row', title: `state row ${number}`});

  function stateRows({details}) {
    if (details.own_state_row === null) return null;
    const made = element('span', '', {class: 'rows'});
    if (details.read_state_row === null) {
      made.append('state ', row(details.own_state_row), ' from zero');
    } else {
      made.append('state ', row(details.read_state_row), ' → ', row(details.own_state_row));
    }
    return made;
  }

  // A window is a column of its drafts: those that became tokens are filled.
  function windowStrip(windows) {
    const strip = element('span', '', {class: 'windows', role: 'img'});
    const sums = windowSums(windows);
    strip.setAttribute('aria-label', `windows: ${sums.accepted} drafts accepted, ${sums.withdrawn} withdrawn`);
    for (const [drafts, accepted] of windows.slice(-200)) {
      const column = element('span', '', {class: 'window', title: `${accepted} of ${drafts} drafts accepted`});
      for (let i = 0; i < drafts; ++i) column.append(element('i', '', i < accepted ? {class: 'accepted'} : {}));
      strip.append(column);
    }
    return strip;
  }

  function line(parent, picture, text) {
    const made = element('div', '', {class: 'line'});
    if (picture) made.append(picture);
    made.append(element('span', text));
    parent.append(made);
    return made;
  }

  // `turn`: {details, promptTokens, completionTokens, cachedTokens, seconds}, as far as it is known.
  function ofTurn(turn) {
    const made = element('div', '', {class: 'seed'});
    const {details} = turn;
    if (details) {
      const {shared, copied, own} = blocksOf(turn);
      const parts = [`${shared} shared`];
      if (copied) parts.push(`${count(details.copied_tokens, 'token')} copied`);
      parts.push(`${own} new`);
      const blocks = line(made, blockStrip(turn), parts.join(' · '));
      const rows = stateRows(turn);
      if (rows) blocks.append(rows);
      if (details.windows.length > 0) {
        const sums = windowSums(details.windows);
        line(made, windowStrip(details.windows),
            `${count(sums.windows, 'window')}: ${count(sums.accepted, 'draft')} accepted, ${sums.withdrawn} withdrawn`);
      }
    }
    const reused = turn.cachedTokens ?? details?.attached_tokens;
    const words = [];
    if (reused !== undefined) words.push(`${reused} of ${count(turn.promptTokens, 'prompt token')} reused`);
    words.push(`${turn.completionTokens} generated`);
    if (turn.seconds !== undefined) words.push(`${turn.seconds.toFixed(2)} s`);
    line(made, null, words.join(' · ')).classList.add('figures');
    return made;
  }

  // --- the states of conversations

  const blockNumbers = head => head.blocks.flatMap(
      ([first, length]) => Array.from({length}, (_, i) => first + i));

  // Who holds each block and each state row: {blocks: Map(number -> Set(conversation)), rows: the same}.
  function holders(conversations) {
    const held = {blocks: new Map(), rows: new Map()};
    const add = (map, number, id) => {
      if (!map.has(number)) map.set(number, new Set());
      map.get(number).add(id);
    };
    for (const {id, heads} of conversations) {
      for (const head of heads) {
        for (const block of blockNumbers(head)) add(held.blocks, block, id);
        if (head.state_row !== null) add(held.rows, head.state_row, id);
      }
    }
    return held;
  }

  // What one conversation shares with another: {blocks, sharedBlocks, rows, sharedRows}.
  function sharing(heads, others) {
    const all = holders([{id: 'own', heads}, {id: 'other', heads: others}]);
    const own = map => [...map.values()].filter(ids => ids.has('own'));
    const shared = map => own(map).filter(ids => ids.has('other')).length;
    return {
      blocks: own(all.blocks).length, sharedBlocks: shared(all.blocks),
      rows: own(all.rows).length, sharedRows: shared(all.rows),
    };
  }

  // `most`: blocks of the longest head, so that the same block lies below itself.
  function headRow(head, held, most) {
    const made = element('div', '', {class: 'head'});
    made.append(element('span', head.kind, {class: 'kind'}));
    made.append(element('span', String(head.length), {class: 'length'}));
    const numbers = blockNumbers(head);
    const strip = element('span', '', {class: 'strip', role: 'img'});
    strip.style.setProperty('--boxes', numbers.length);
    strip.style.setProperty('--most', most);
    const isShared = block => held.blocks.get(block).size > 1;
    const numShared = numbers.filter(isShared).length;
    const label = `${count(numbers.length, 'block')}, ${numShared} shared with another conversation`;
    strip.setAttribute('aria-label', label);
    for (let at = 0; at < numbers.length;) {
      let end = at + 1;
      while (end < numbers.length && isShared(numbers[end]) === isShared(numbers[at])) ++end;
      const names = numbers.slice(at, end).join(' ');
      const run = boxes(end - at, isShared(numbers[at]) ? 'shared' : 'own', 'blocks ' + names);
      run.dataset.blocks = names;
      strip.append(run);
      at = end;
    }
    made.append(strip);
    if (head.state_row !== null) {
      const own = row(head.state_row);
      if (held.rows.get(head.state_row).size > 1) own.classList.add('shared');
      made.append(own);
    }
    return made;
  }

  // `conversations`: [{id, heads}], the one that is shown first.
  function ofStates(conversations) {
    const made = document.createDocumentFragment();
    const held = holders(conversations);
    const lengths = conversations.flatMap(({heads}) => heads.map(head => blockNumbers(head).length));
    const most = Math.max(1, ...lengths);
    for (const {id, heads} of conversations) {
      const section = element('section', '', {class: 'states'});
      section.dataset.conversation = id;
      section.append(element('h3', id));
      const isEmpty = heads.length === 0;
      if (isEmpty) section.append(element('p', 'No state is kept: the next turn computes its tokens again.'));
      for (const head of [...heads].sort((a, b) => a.length - b.length)) section.append(headRow(head, held, most));
      made.append(section);
    }
    return made;
  }

  return {ofTurn, ofStates, sharing, count};
})();
