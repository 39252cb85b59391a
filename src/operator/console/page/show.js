// A document as elements. Whatever comes from the server becomes text, never markup. A part is made again only when its
// own data have changed, so that a reader is not thrown out of the others; the focus stays on the same link.

const SVG = 'http://www.w3.org/2000/svg';
const byId = (id) => document.getElementById(id);
const shown = new Map();

// How far this machine's clock is from the server's, in milliseconds.
let apart = 0;

export function tick() {
  for (const element of document.querySelectorAll('time')) {
    const text = age(element.dateTime);
    if (element.textContent !== text) element.textContent = text;
  }
}

tick.clock = (date) => {
  const time = Date.parse(date ?? '');
  apart = Number.isNaN(time) ? 0 : time - Date.now();
};

function age(text) {
  const seconds = Math.round((Date.now() + apart - Date.parse(text)) / 1_000);
  const many = Math.abs(seconds);
  const units = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [1, 's']];
  const [size, unit] = units.find(([size]) => many >= 2 * size) ?? [1, 's'];
  const words = `${Math.floor(many / size)} ${unit}`;
  return seconds < 0 ? `in ${words}` : `${words} ago`;
}

// el('p', { class: 'a' }, 'text', element...)
function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

const time = (text) => (text ? el('time', { datetime: text, title: text }, age(text)) : '');
const dash = (value) => (value === undefined || value === null || value === '' ? '–' : String(value));
const number = (value) => (value === undefined ? '–' : value.toLocaleString('en'));

function bytes(value) {
  if (value === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let size = value;
  let unit = 0;
  while (size >= 1_024 && unit < units.length - 1) {
    size /= 1_024;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(1)} ${units[unit]}`;
}

// Puts a part in its place, if its data are others than those that are there.
function part(id, data, make) {
  const text = JSON.stringify(data) ?? '';
  if (shown.get(id) === text) return;
  shown.set(id, text);
  const place = byId(id);
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const again = focused?.getAttribute('href') ?? focused?.getAttribute('aria-label');
  place.replaceChildren(...[make()].flat().filter(Boolean));
  if (again) {
    const same = (one) => one.getAttribute('href') === again || one.getAttribute('aria-label') === again;
    [...place.querySelectorAll('a, [tabindex]')].find(same)?.focus();
  }
}

// A table that can be scrolled sideways by keyboard too.
function table(caption, heads, rows) {
  const cells = (row) => row.map((cell, at) => (at === 0 ? el('th', { scope: 'row' }, cell) : el('td', {}, cell)));
  const head = el('thead', {}, el('tr', {}, ...heads.map((text) => el('th', { scope: 'col' }, text))));
  const body = el('tbody', {}, ...rows.map((row) => el('tr', {}, ...cells(row))));
  const whole = el('table', {}, el('caption', { class: 'unseen' }, caption), head, body);
  return el('div', { class: 'scroll', role: 'region', 'aria-label': `Table: ${caption}`, tabindex: '0' }, whole);
}

const sign = (text, tone) => el('span', { class: 'sign', 'data-tone': tone }, text);
const signs = (all) => el('span', { class: 'signs' }, ...all.map((one) => sign(one.text, one.tone)));
const key = (row) => `${row.namespace}/${row.name}`;

export function show(doc, wanted) {
  byId('clusters').hidden = false;
  document.title = wanted ? `${wanted.cluster} – Quorate console` : 'Quorate console';
  byId('about').textContent = `Operator ${doc.version}${doc.active ? '' : ', standing by'}`;
  part('clusters-body', [doc.clusters, doc.omitted, doc.unreadable, doc.namespace, wanted], () => clusters(doc, wanted));
  byId('cluster').hidden = !wanted;
  if (doc.cluster) cluster(doc.cluster);
}

const PARTS = ['facts', 'step', 'members', 'conditions', 'notes', 'backups', 'events'];

export function showMissing(wanted) {
  byId('cluster-heading').textContent = `${wanted.of}/${wanted.cluster}`;
  byId('summary').textContent = 'There is no such cluster, or not among those that you may see.';
  for (const id of PARTS) part(id, null, () => []);
}

// Nothing stays of what was shown to whoever had the token.
export function clear() {
  for (const id of ['clusters', 'cluster']) byId(id).hidden = true;
  for (const id of ['clusters-body', ...PARTS]) part(id, null, () => []);
  for (const id of ['about', 'cluster-heading', 'summary']) byId(id).textContent = '';
  document.title = 'Quorate console';
}

function clusters(doc, wanted) {
  const where = doc.namespace ? ` in namespace ${doc.namespace}` : '';
  if (doc.clusters.length === 0) return el('p', {}, `There are no clusters${where}.`);
  const link = (row) => {
    const own = wanted && row.namespace === wanted.of && row.name === wanted.cluster;
    return el('a', { href: `#${key(row)}`, 'aria-current': own ? 'true' : null }, row.name);
  };
  const step = (row) =>
    row.step ? el('span', {}, `${row.step.action} ${row.step.member ?? ''} `, time(row.step.since)) : 'none';
  const rows = doc.clusters.map((row) => [
    link(row), row.namespace, signs(row.signs), dash(row.ready), dash(row.version), dash(row.leader), step(row),
  ]);
  const heads = ['Name', 'Namespace', 'Status', 'Ready', 'Version', 'Leader', 'Step in hand'];
  const more = doc.omitted > 0 && `${number(doc.omitted)} more are not listed: ask for one namespace.`;
  const unread = doc.unreadable > 0 && `${number(doc.unreadable)} EtcdClusters cannot be read: the operator's log says why.`;
  return [table(`Clusters${where}`, heads, rows), more && el('p', {}, more), unread && el('p', {}, unread)];
}

function cluster(one) {
  const heading = key(one);
  if (byId('cluster-heading').textContent !== heading) byId('cluster-heading').textContent = heading;
  const summary = one.summary ?? 'The operator has not reported on this cluster yet.';
  if (byId('summary').textContent !== summary) byId('summary').textContent = summary;
  part('facts', [one.signs, one.ready, one.replicas, one.version, one.clusterId, one.endpoint, one.created, one.recoveryPoint], () => facts(one));
  part('step', [one.step, one.failing], () => step(one));
  part('members', [one.members, one.observed, one.leader], () => members(one));
  part('conditions', one.conditions, () => conditions(one.conditions));
  part('notes', one.notes, () => notes(one.notes));
  part('backups', one.backups, () => backups(one.backups));
  part('events', one.events, () => events(one.events));
}

function list(pairs) {
  const given = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return el('dl', {}, ...given.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
}

function facts(one) {
  return list([
    ['Status', signs(one.signs)],
    ['Ready voters', one.ready ?? `of ${one.replicas} nothing is known`],
    ['Version', one.version],
    ['Cluster ID', one.clusterId],
    ['Clients connect to', one.endpoint?.replaceAll(',', ', ')],
    ['Created', one.created && time(one.created)],
    ['Saved up to', one.recoveryPoint && time(one.recoveryPoint)],
  ]);
}

function step(one) {
  const failing = one.failing && [
    el('h3', {}, 'Failing write'),
    list([['Action', one.failing.action], ['Error', one.failing.message], ['Since', time(one.failing.since)]]),
  ];
  if (!one.step) return [el('h3', {}, 'Step in hand'), el('p', {}, 'None: there is nothing to do.'), ...(failing || [])];
  const { action, member, state, reason, waitingFor, next, since, deadline } = one.step;
  return [
    el('h3', {}, 'Step in hand'),
    list([
      ['Action', `${action} ${member ?? ''}`],
      ['State', `${state} (${reason})`],
      ['Waiting for', waitingFor],
      ['Since', since && time(since)],
      ['Deadline', deadline && time(deadline)],
      ['Next', next],
    ]),
    ...(failing || []),
  ];
}

const TONES = { Healthy: 'good', Unhealthy: 'bad', Unknown: 'unknown' };
const role = (member) => (member.leader && member.role === 'Voter' ? 'Leader' : member.role);

function members(one) {
  if (one.members.length === 0) return [el('h3', {}, 'Members'), el('p', {}, 'None is known.')];
  const rows = one.members.map((member) => [
    member.name,
    role(member),
    el('span', {}, sign(member.health, TONES[member.health]), member.reason ? ` ${member.reason}` : ''),
    number(member.lagEntries),
    number(member.position?.matchIndex),
    number(member.position?.appliedIndex),
    number(member.position?.term),
    bytes(member.position?.dataBytes),
    el('span', {}, dash(member.version), member.updated ? '' : ' (older spec)'),
    dash(member.node),
    dash(member.id),
  ]);
  const heads = ['Member', 'Role', 'Health', 'Lag', 'Match index', 'Applied index', 'Term', 'Data', 'Version', 'Node', 'ID'];
  const when = one.observed && el('p', { class: 'small' }, 'Indexes and sizes were observed ', time(one.observed), '.');
  return [el('h3', {}, 'Members'), topology(one), table('Members', heads, rows), when];
}

// The leader, and whom it sends its log to.
function topology(one) {
  const leader = one.members.find((member) => member.leader);
  const others = one.members.filter((member) => member !== leader);
  const high = Math.max(1, others.length) * 56 + 8;
  const at = (index) => 32 + index * 56;
  const middle = high / 2;
  const words = (member) => `${member.name} (${role(member)}, ${member.health})`;
  const label = leader
    ? `${words(leader)} sends its log to ${others.map(words).join(', ') || 'no one'}`
    : `No leader is seen; ${others.map(words).join(', ')}`;
  const lines = others.map((member, index) => {
    const kind = member.health === 'Healthy' ? member.role : 'Broken';
    return leader && svg('line', { x1: 210, y1: middle, x2: 330, y2: at(index), class: 'link', 'data-kind': kind });
  });
  return svg(
    'svg',
    { class: 'topology', viewBox: `0 0 560 ${high}`, role: 'img', 'aria-label': label },
    ...lines,
    leader && box(leader, 20, middle),
    ...others.map((member, index) => box(member, 330, at(index))),
  );
}

function box(member, x, y) {
  return svg(
    'g',
    { transform: `translate(${x} ${y})` },
    svg('rect', { x: 0, y: -24, width: 190, height: 48, rx: 8, class: 'box', 'data-tone': TONES[member.health] }),
    svg('text', { x: 14, y: -3, class: 'name' }, member.name),
    svg('text', { x: 14, y: 15, class: 'role' }, `${role(member)}, ${member.health}`),
  );
}

function conditions(all) {
  const rows = all.map((one) => [one.type, one.status, one.reason, one.message, time(one.since)]);
  const what = rows.length === 0 ? el('p', {}, 'None.') : table('Conditions', ['Type', 'Status', 'Reason', 'Message', 'Since'], rows);
  return [el('h3', {}, 'Conditions'), what];
}

function notes(all) {
  if (all.length === 0) return [];
  return [el('h3', {}, 'Notes'), el('ul', {}, ...all.map((one) => el('li', {}, el('strong', {}, one.reason), `: ${one.message}`)))];
}

function backups(given) {
  const heading = el('h3', {}, 'Backups');
  if (given.withheld) return [heading, el('p', {}, given.withheld)];
  if (given.shown.length === 0) return [heading, el('p', {}, 'There is no EtcdBackup of this cluster.')];
  const rows = given.shown.map((one) => [
    one.name, one.phase, one.taken ? time(one.taken) : '–', number(one.revision), dash(one.size), one.store, dash(one.message),
  ]);
  return [heading, table('Backups', ['Name', 'Phase', 'Taken', 'Revision', 'Size', 'Store', 'Message'], rows)];
}

function events(given) {
  const heading = el('h3', {}, 'Events');
  if (given.withheld) return [heading, el('p', {}, given.withheld)];
  if (given.shown.length === 0) return [heading, el('p', {}, 'This process has published none yet.')];
  const rows = given.shown.map((one) => [
    one.reason,
    one.type,
    el('span', {}, one.note, one.count > 1 ? ` (${one.count} times)` : ''),
    time(one.time),
  ]);
  return [heading, table('Events', ['Reason', 'Type', 'Message', 'Last seen'], rows)];
}
