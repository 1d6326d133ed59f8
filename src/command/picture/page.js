'use strict';
// The filter and the search. The page is complete without them.
const nodes = [...document.querySelectorAll('g.node')];
const edges = [...document.querySelectorAll('g.edge')];
const kinds = [...document.querySelectorAll('.kinds input')];
const search = document.querySelector('.search');
const found = document.querySelector('.found');
const texts = new Map(nodes.map(node => {
  const members = document.getElementById('members-' + node.id);
  const text = node.textContent + ' ' + (members ? members.textContent : '');
  return [node, text.toLowerCase()];
}));

function update() {
  const hidden = new Set(kinds.filter(kind => !kind.checked).map(kind => kind.value));
  const words = search.value.toLowerCase();
  const visible = new Set();
  let count = 0;
  for (const node of nodes) {
    const isHidden = hidden.has(node.dataset.kind);
    const matches = texts.get(node).includes(words);
    node.classList.toggle('hidden', isHidden);
    node.classList.toggle('dim', !matches);
    if (isHidden) continue;
    visible.add(node.id);
    count += matches ? 1 : 0;
  }
  for (const edge of edges) {
    const { from, to } = edge.dataset;
    edge.classList.toggle('hidden', !visible.has(from) || !visible.has(to));
    edge.classList.toggle('dim', words !== '');
  }
  found.textContent = words === '' ? '' : count + ' found';
}

kinds.forEach(kind => kind.addEventListener('change', update));
search.addEventListener('input', update);
document.querySelector('.controls').hidden = false;
update();
