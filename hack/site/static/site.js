// Copyright 2026 The Hawser Authors.
// SPDX-License-Identifier: Apache-2.0

// The search and the list of versions of the documentation. Without it every page still works.
const root = document.body.dataset.root;

// found returns the pages that have all words, those with a word in the title first.
function find(pages, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const has = (where) => words.filter((word) => where.toLowerCase().includes(word)).length;
  return pages
    .filter((page) => has(page.title + ' ' + page.text) === words.length)
    .sort((a, b) => has(b.title) - has(a.title))
    .slice(0, 20)
    .map((page) => ({ ...page, around: around(page.text, words[0]) }));
}

function around(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 60);
  return text.slice(at, at + 160).replace(/\s+/g, ' ');
}

let pages;
document.getElementById('search').addEventListener('input', async (event) => {
  pages ??= await (await fetch(root + 'index.json')).json();
  const list = document.getElementById('found');
  const results = find(pages, event.target.value);
  list.hidden = !results.length;
  list.replaceChildren(...results.map((result) => {
    const item = document.createElement('li');
    const link = Object.assign(document.createElement('a'), { href: result.url, textContent: result.title });
    item.append(link, Object.assign(document.createElement('small'), { textContent: result.around }));
    return item;
  }));
});

// versions.json is beside the directories of the versions, and names them, the newest first.
fetch(root + '../versions.json').then((answer) => (answer.ok ? answer.json() : [])).then((versions) => {
  const { version } = document.body.dataset;
  const select = document.getElementById('versions');
  const options = versions.map((name) => new Option(name, name, false, name === version));
  if (options.length) select.replaceChildren(...options);
  select.addEventListener('change', () => {
    location.href = root + '../' + select.value + '/' + location.pathname.slice(root.length);
  });
});
