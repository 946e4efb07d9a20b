// markdown.js: Markdown to DOM nodes. Every text of the source becomes a text node, so that none is read as HTML, and
// an href is an http(s) address or not there at all. What is not closed yet (a stream) shows as what it is so far.
'use strict';

const markdown = (() => {
  const MAX_INLINE = 20000;  // characters of a paragraph whose marks are looked for: the search is quadratic
  const MAX_DEPTH = 8;       // of lists and quotes in each other, and of marks in each other

  function element(tag, text, attributes = {}) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  // The address as it may stand in a link; null: it may not.
  function safeAddress(text) {
    if (!/^https?:\/\//i.test(text)) return null;
    try {
      const url = new URL(text);
      return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : null;
    } catch {
      return null;
    }
  }

  function link(address, label) {
    const made = element('a', '', {href: address, rel: 'noopener noreferrer', target: '_blank'});
    made.append(label);
    return made;
  }

  const isSpace = character => character === undefined || /\s/.test(character);
  const isWord = character => character !== undefined && /[\p{L}\p{N}_]/u.test(character);

  // --- inline: each rule looks at `text` from `at` on, and gives [node, where it ends] or null.

  function codeSpan(text, at) {
    const mark = /^`+/.exec(text.slice(at, at + 16))?.[0];
    if (!mark) return null;
    for (let from = at + mark.length;;) {
      const end = text.indexOf(mark, from);
      if (end < 0) return null;
      const isLonger = text[end + mark.length] === '`' || text[end - 1] === '`';
      if (!isLonger) {
        const code = text.slice(at + mark.length, end).replace(/^ (.*[^ ].*) $/s, '$1');
        return [element('code', code), end + mark.length];
      }
      from = end + 1;
    }
  }

  const EMPHASIS = [['**', 'strong'], ['__', 'strong'], ['~~', 'del'], ['*', 'em'], ['_', 'em']];

  function emphasis(text, at, depth) {
    const found = EMPHASIS.find(([mark]) => text.startsWith(mark, at));
    if (!found) return null;
    const [mark, tag] = found;
    const begin = at + mark.length;
    if (isSpace(text[begin]) || (mark[0] === '_' && isWord(text[at - 1]))) return null;
    for (let end = text.indexOf(mark, begin + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
      const behind = text[end + mark.length];
      const isLonger = mark.length === 1 && (behind === mark || text[end - 1] === mark);
      if (isLonger || isSpace(text[end - 1]) || (mark[0] === '_' && isWord(behind))) continue;
      const made = element(tag);
      inline(text.slice(begin, end), made, depth + 1);
      return [made, end + mark.length];
    }
    return null;
  }

  function namedLink(text, at, depth) {
    if (text[at] !== '[') return null;
    const form = /^\[([^\]\n]{1,500})\]\(\s*<?([^\s<>()]{1,2000})>?(?:\s+"[^"\n]*")?\s*\)/;
    const found = form.exec(text.slice(at, at + 2600));
    const address = found && safeAddress(found[2]);
    if (!address) return null;
    const label = document.createDocumentFragment();
    inline(found[1], label, depth + 1);
    return [link(address, label), at + found[0].length];
  }

  function bareLink(text, at) {
    if (isWord(text[at - 1])) return null;
    const found = /^https?:\/\/[^\s<>"'`]+/i.exec(text.slice(at, at + 2000));
    if (!found) return null;
    let shown = found[0].replace(/[.,;:!?*_~]+$/, '');
    if (shown.endsWith(')') && !shown.includes('(')) shown = shown.slice(0, -1);
    const address = safeAddress(shown);
    return address && [link(address, shown), at + shown.length];
  }

  function inline(text, parent, depth = 0) {
    let plain = '';
    const flush = () => {
      if (plain) parent.append(plain);
      plain = '';
    };
    const marks = text.length <= MAX_INLINE && depth <= MAX_DEPTH;
    for (let at = 0; at < text.length;) {
      const character = text[at];
      if (character === '\\' && /[\\`*_{}[\]()#+\-.!~|>]/.test(text[at + 1] ?? '')) {
        plain += text[at + 1];
        at += 2;
        continue;
      }
      let found = null;
      if (marks && character === '`') found = codeSpan(text, at);
      if (marks && '*_~'.includes(character)) found = emphasis(text, at, depth);
      if (marks && character === '[' && !isInLink(parent)) found = namedLink(text, at, depth);
      if (marks && /h/i.test(character) && !isInLink(parent)) found = bareLink(text, at);
      if (found) {
        flush();
        parent.append(found[0]);
        at = found[1];
        continue;
      }
      // A run of marks that opens nothing is text as a whole: its rest opens nothing either.
      const run = '`*_~'.includes(character) ? /^(.)\1*/.exec(text.slice(at, at + 200))[0] : character;
      plain += run;
      at += run.length;
    }
    flush();
  }

  const isInLink = parent => parent.nodeName === 'A' || parent.nodeType === Node.DOCUMENT_FRAGMENT_NODE;

  // --- blocks: each rule looks at `lines` from `at` on, and gives [node, the line behind it] or null.

  const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
  const LIST = /^([ \t]*)([-*+]|\d{1,9}[.)])(?:\s+|$)(.*)$/;
  const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
  const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;

  function fence(lines, at) {
    const open = FENCE.exec(lines[at]);
    if (!open) return null;
    let end = at + 1;
    const isEnd = line => line.trim().startsWith(open[1]) && /^(`+|~+)$/.test(line.trim());
    while (end < lines.length && !isEnd(lines[end])) ++end;
    const language = open[2].trim().split(/\s/)[0];
    return [codeBlock(lines.slice(at + 1, end).join('\n'), language), end + 1];
  }

  function codeBlock(code, language) {
    const figure = element('figure', '', {class: 'code'});
    const caption = element('figcaption');
    const copy = element('button', 'Copy', {type: 'button', class: 'copy', 'aria-label': 'Copy this code'});
    caption.append(element('span', language || 'code'), copy);
    const pre = element('pre', '', {tabindex: '0'});
    pre.append(element('code', code));
    figure.append(caption, pre);
    return figure;
  }

  function heading(lines, at) {
    const found = HEADING.exec(lines[at]);
    if (!found) return null;
    const made = element('h' + Math.min(6, found[1].length + 2));  // the page has the first two
    inline(found[2], made);
    return [made, at + 1];
  }

  function quote(lines, at, depth) {
    if (!/^ {0,3}>/.test(lines[at])) return null;
    let end = at;
    while (end < lines.length && /^ {0,3}>/.test(lines[end])) ++end;
    const made = element('blockquote');
    blocks(lines.slice(at, end).map(line => line.replace(/^ {0,3}> ?/, '')), made, depth + 1);
    return [made, end];
  }

  function list(lines, at, depth) {
    const first = LIST.exec(lines[at]);
    if (!first || RULE.test(lines[at])) return null;
    const isOrdered = /\d/.test(first[2]);
    const made = element(isOrdered ? 'ol' : 'ul');
    if (isOrdered && parseInt(first[2], 10) !== 1) made.setAttribute('start', String(parseInt(first[2], 10)));
    const isItem = line => {
      const found = LIST.exec(line ?? '');
      return found && found[1].length <= first[1].length + 1 && /\d/.test(found[2]) === isOrdered ? found : null;
    };
    while (at < lines.length) {
      const item = isItem(lines[at]);
      if (!item) break;
      const indent = item[1].length + 2;                     // that makes a line the item's
      const content = item[1].length + item[2].length + 1;  // where its text begins
      const own = [item[3]];
      for (++at; at < lines.length && !isItem(lines[at]); ++at) {
        const isBlank = lines[at].trim() === '';
        const line = lines[at].replace(/^\t+/, tabs => '    '.repeat(tabs.length));
        const numSpaces = /^ */.exec(line)[0].length;
        const isDeeper = numSpaces >= indent;
        if (isBlank && !(isItem(lines[at + 1]) || /^( {2,}|\t)/.test(lines[at + 1] ?? ''))) break;
        if (!isBlank && !isDeeper && (own.at(-1) === '' || startsBlock(lines, at))) break;
        own.push(isDeeper ? line.slice(Math.min(numSpaces, content)) : line.trim());
      }
      const entry = element('li');
      blocks(own, entry, depth + 1, /*isTight=*/!own.includes(''));
      made.append(entry);
    }
    return [made, at];
  }

  const cells = line => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map(cell => cell.trim());

  function table(lines, at) {
    if (!lines[at].includes('|') || !/^[ |:-]*-[ |:-]*$/.test(lines[at + 1] ?? '')) return null;
    const names = cells(lines[at]);
    const sides = cells(lines[at + 1]).map(cell => (/^:-+:$/.test(cell) ? 'center' : /-:$/.test(cell) ? 'right' : ''));
    if (sides.length !== names.length || !lines[at + 1].includes('|')) return null;
    const row = (texts, tag) => {
      const made = element('tr');
      names.forEach((_, i) => {
        const cell = element(tag, '', sides[i] ? {class: sides[i]} : {});
        inline((texts[i] ?? '').replaceAll('\\|', '|'), cell);
        made.append(cell);
      });
      return made;
    };
    const head = element('thead');
    head.append(row(names, 'th'));
    const body = element('tbody');
    let end = at + 2;
    for (; end < lines.length && lines[end].includes('|'); ++end) body.append(row(cells(lines[end]), 'td'));
    const made = element('table');
    made.append(head, body);
    const frame = element('div', '', {class: 'table', tabindex: '0'});
    frame.append(made);
    return [frame, end];
  }

  const rule = (lines, at) => (RULE.test(lines[at]) ? [element('hr'), at + 1] : null);

  function startsBlock(lines, at) {
    const line = lines[at];
    return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || LIST.test(line) || /^ {0,3}>/.test(line) ||
        table(lines, at) !== null;
  }

  function paragraph(lines, at, isTight) {
    let end = at + 1;
    while (end < lines.length && lines[end].trim() !== '' && !startsBlock(lines, end)) ++end;
    const made = isTight ? document.createElement('span') : element('p');
    inline(lines.slice(at, end).join('\n').trimEnd(), made);  // its style keeps spaces and line ends
    return [made, end];
  }

  function blocks(lines, parent, depth = 0, isTight = false) {
    const rules = depth > MAX_DEPTH ? [] : [fence, heading, rule, quote, list, table];
    for (let at = 0; at < lines.length;) {
      if (lines[at].trim() === '') {
        ++at;
        continue;
      }
      let found = null;
      for (const one of rules) found ??= one(lines, at, depth);
      found ??= paragraph(lines, at, isTight);
      parent.append(found[0]);
      at = found[1];
    }
  }

  // A model of code may write code and nothing else, without a fence.
  const CODE = /^(async def |def |class \w+[:(]|import \w|from [\w.]+ import |@\w+|#include\b|#!|function \w+\()/;

  // The text as nodes.
  function render(text) {
    const made = document.createDocumentFragment();
    if (CODE.test(text.trimStart())) made.append(codeBlock(text.replace(/^\n+/, ''), ''));
    else blocks(text.replaceAll('\r\n', '\n').split('\n'), made);
    return made;
  }

  return {render, safeAddress};
})();
