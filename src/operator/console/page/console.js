// The page's connection: the token, the stream of documents and what to do when it ends. What a document looks like is
// in show.js. The token is sent to this page's own server alone, and kept in sessionStorage.

import { clear, show, showMissing, tick } from './show.js';

// The server sends something every 15 seconds.
const SILENCE = 45_000;
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 30_000;

const byId = (id) => document.getElementById(id);
const kept = (name) => sessionStorage.getItem(name) ?? '';

// A stream that lived so long ended as it should: the server ends each after a quarter of an hour.
const LIVED = 60_000;

// Ends the current attempt: a newer one takes its place.
let current = new AbortController();
let pause = FIRST_PAUSE;
let connected = Infinity;

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// The cluster in the address: #NAMESPACE/NAME.
function chosen() {
  // Names of Kubernetes need no escaping.
  const [of, cluster, ...rest] = location.hash.slice(1).split('/');
  return of && cluster && rest.length === 0 ? { of, cluster } : null;
}

function say(state, text) {
  const line = byId('connection');
  if (line.textContent !== text) line.textContent = text;
  line.dataset.state = state;
}

function ask(why) {
  byId('refusal').textContent = why;
  byId('namespace').value = kept('namespace');
  clear();
  byId('sign-in').hidden = false;
  byId('forget').hidden = true;
  say('waiting', 'Not connected');
  byId('token').focus();
}

async function connect(signal) {
  const query = new URLSearchParams(chosen() ?? {});
  if (kept('namespace')) query.set('namespace', kept('namespace'));
  const headers = kept('token') ? { Authorization: `Bearer ${kept('token')}` } : {};
  const response = await fetch(`stream?${query}`, { headers, signal, cache: 'no-store', credentials: 'omit' });
  if (!response.ok) throw new Refused(response.status, (await response.text()).trim());
  tick.clock(response.headers.get('date'));
  return response.body.pipeThrough(new TextDecoderStream()).getReader();
}

// Server-sent events, as far as the server uses them: one line of data each, and comments.
async function follow(reader, alive) {
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const field = (name) => part.split('\n').find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (field('event') === 'refused') throw new Refused(403, JSON.parse(field('data')));
      if (field('event') === 'document') take(JSON.parse(field('data')));
    }
  }
}

function take(document_) {
  byId('sign-in').hidden = true;
  byId('forget').hidden = !kept('token');
  const wanted = chosen();
  show(document_, wanted);
  if (wanted && !document_.cluster) showMissing(wanted);
  // With one cluster there is nothing to choose.
  if (!wanted && document_.clusters.length === 1) {
    const [{ namespace, name }] = document_.clusters;
    history.replaceState(null, '', `#${namespace}/${name}`);
    start();
  }
}

async function attempt(controller) {
  let timer;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => controller.abort(new Error('nothing was heard for a while')), SILENCE);
  };
  try {
    alive();
    const reader = await connect(controller.signal);
    pause = FIRST_PAUSE;
    connected = Date.now();
    say('live', 'Live');
    await follow(reader, alive);
  } finally {
    clearTimeout(timer);
  }
}

async function start() {
  current.abort();
  const controller = new AbortController();
  current = controller;
  while (current === controller) {
    const own = new AbortController();
    controller.signal.addEventListener('abort', () => own.abort(), { once: true });
    let why = '';
    try {
      await attempt(own);
    } catch (error) {
      if (current !== controller) return;
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        const given = kept('token');
        sessionStorage.removeItem('token');
        ask(given || error.status === 403 ? error.message : '');
        return;
      }
      why = error instanceof Refused ? `: ${error.message}` : '';
    }
    if (current !== controller) return;
    const lived = Date.now() - connected;
    connected = Infinity;
    if (lived > LIVED) continue;
    const seconds = Math.round(pause / 1_000);
    say('lost', `Connection lost${why}. What is shown is from before. Trying again in ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

byId('sign-in').addEventListener('submit', (event) => {
  event.preventDefault();
  sessionStorage.setItem('token', byId('token').value.trim());
  sessionStorage.setItem('namespace', byId('namespace').value.trim());
  byId('token').value = '';
  byId('refusal').textContent = '';
  start();
});
byId('forget').addEventListener('click', () => {
  sessionStorage.clear();
  current.abort();
  current = new AbortController();
  ask('');
});
addEventListener('hashchange', () => {
  // The link that skips to the content.
  if (location.hash === '#main') return;
  if (!chosen()) {
    byId('cluster').hidden = true;
  } else {
    byId('cluster-heading').focus();
  }
  start();
});
setInterval(tick, 1_000);
start();
