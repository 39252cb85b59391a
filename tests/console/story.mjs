// What the console must be, in a browser: story.mjs FOLDER, where screenshots are saved. Prints a line for each chapter that
// passed; the first that fails ends it with status 1.

import assert from 'node:assert';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import puppeteer from 'puppeteer-core';
import { Local } from './local.mjs';
import { Operator, TOKEN } from './operator.mjs';

const PATIENCE = 90_000;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const folder = process.argv[2];
const WIDE = { width: 1280, height: 900 };
// As it is in docs/images.
const PICTURE = { width: 1000, height: 1180 };
const NARROW = { width: 360, height: 740 };

// A page that fails the test on any error of its own, and on any request that leaves its server.
async function opened(browser, url, { expected = [] } = {}) {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.wrong = [];
  page.on('pageerror', (error) => page.wrong.push(`an error: ${error}`));
  page.on('console', (line) => {
    const known = expected.some((text) => line.text().includes(text));
    if (['error', 'warn', 'warning'].includes(line.type()) && !known) page.wrong.push(`the browser's log: ${line.text()}`);
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(url)) page.wrong.push(`a request to ${request.url()}`);
  });
  await page.setViewport(WIDE);
  return page;
}

async function theme(page, name) {
  await page.emulateMediaFeatures([
    { name: 'prefers-color-scheme', value: name },
    { name: 'prefers-reduced-motion', value: 'reduce' },
  ]);
}

async function accessible(page, where) {
  const found = await page.evaluate(`(() => { ${axe}; return axe.run({ resultTypes: ['violations'] }); })()`);
  const told = (all) => all.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).join('; ')}`);
  assert.deepStrictEqual(told(found.violations), [], `axe, ${where}`);
  assert.ok(found.passes.length > 20, `axe looked at ${found.passes.length} rules, ${where}`);
}

// Text and ground by their variables: axe cannot tell what is behind the text of a drawing, or scrolled out of sight.
const PAIRS = ['text/ground', 'text/card', 'quiet/ground', 'quiet/card', 'link/card', 'on-accent/accent', 'bad/ground', 'bad/card'].concat(
  ['good', 'busy', 'warning', 'bad', 'unknown'].flatMap((tone) => [`${tone}/${tone}-ground`, `text/${tone}-ground`]),
);

async function contrast(page, where) {
  const colours = await page.evaluate((names) => {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }, [...new Set(PAIRS.flatMap((pair) => pair.split('/')))]);
  const light = (name) => {
    const parts = /^#(..)(..)(..)$/.exec(colours[name]).slice(1).map((part) => parseInt(part, 16) / 255);
    const linear = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  for (const pair of PAIRS) {
    const [low, high] = pair.split('/').map(light).sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    assert.ok(ratio >= 4.5, `${where}: the contrast of ${pair} is ${ratio.toFixed(2)}`);
  }
}

const says = (page, selector, text) =>
  page.waitForFunction((selector, text) => document.querySelector(selector)?.innerText.includes(text), {}, selector, text);

const rows = (page, id) =>
  page.$$eval(`#${id} tbody tr`, (all) => all.map((row) => [...row.children].map((cell) => cell.innerText.trim())));

async function screen(page, name, fullPage = true) {
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage });
}

// Members appear, in both themes and on a narrow screen.
async function looks(page, url) {
  for (const name of ['light', 'dark']) {
    await theme(page, name);
    await page.goto(url);
    await says(page, '#facts', 'Ready');
    await page.waitForFunction(() => document.querySelectorAll('#members tbody tr').length === 3);
    await page.waitForFunction(() => !document.querySelector('#step').innerText.includes('Deadline'));
    await says(page, '#facts', '3/3');
    await says(page, '#connection', 'Live');
    const members = await rows(page, 'members');
    assert.deepStrictEqual(members.map((row) => row[0]), ['demo-1', 'demo-2', 'demo-3']);
    assert.strictEqual(members.filter((row) => row[1] === 'Leader').length, 1, JSON.stringify(members));
    assert.ok(members.every((row) => row[2] === 'Healthy' && Number(row[5].replaceAll(',', '')) > 0), JSON.stringify(members));
    assert.ok((await rows(page, 'events')).length > 2, 'events of its growth');
    assert.ok((await rows(page, 'conditions')).some((row) => row[0] === 'Ready' && row[1] === 'True'));
    await accessible(page, name);
    await contrast(page, name);
    await page.setViewport(PICTURE);
    await screen(page, name, false);
    await page.setViewport(NARROW);
    await accessible(page, `${name}, narrow`);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `the page is ${overflow} pixels wider than a narrow screen`);
    await screen(page, `${name}-narrow`);
    await page.setViewport(WIDE);
  }
}

// Everything is reached by keyboard, and the focus survives documents.
async function keyboard(page, url) {
  await page.goto(url);
  await says(page, '#connection', 'Live');
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText);
  const seen = [];
  for (let presses = 0; presses < 12; presses += 1) {
    await page.keyboard.press('Tab');
    seen.push(await focused());
  }
  for (const wanted of ['Skip to the clusters', 'demo', 'Table: Clusters', 'Table: Members', 'Table: Conditions', 'Table: Events']) {
    assert.ok(seen.includes(wanted), `${wanted} is not reached: ${seen.join(', ')}`);
  }
  await page.focus('#clusters a');
  await page.keyboard.press('Enter');
  await says(page, '#cluster-heading', 'local/demo');
}

// A member that is stopped shows, and so does its return.
async function stopped(page, local) {
  const follower = (await rows(page, 'members')).find((row) => row[1] !== 'Leader')[0];
  const pid = local.pid(follower);
  process.kill(pid, 'SIGSTOP');
  try {
    await page.waitForFunction(
      (name) => [...document.querySelectorAll('#members tbody tr')].some((row) => row.innerText.startsWith(name) && !row.innerText.includes('Healthy')),
      {},
      follower,
    );
    await says(page, '#facts', 'Degraded');
    for (const name of ['light', 'dark']) {
      await theme(page, name);
      await accessible(page, `a stopped member, ${name}`);
    }
    await screen(page, 'stopped');
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  await says(page, '#facts', '3/3');
}

// A lost connection is told, and comes back by itself.
async function lost(page, local, url) {
  await local.stop();
  await says(page, '#connection', 'Connection lost');
  await theme(page, 'light');
  await accessible(page, 'a lost connection');
  await local.start(new URL(url).host);
  await says(page, '#connection', 'Live');
  await says(page, '#facts', '3/3');
}

// Where the operator asks for a token: what is typed is sent to it, and kept nowhere else.
async function token(browser, url) {
  const page = await opened(browser, url, { expected: ['401', '403'] });
  const sent = [];
  await page.setRequestInterception(true);
  page.on('request', (request) => {
    if (!request.url().includes('/stream')) return request.continue();
    const given = request.headers().authorization;
    sent.push([given, new URL(request.url()).search]);
    const status = given ? 403 : 401;
    return request.respond({ status, contentType: 'text/plain', body: given ? 'alice may not list etcdclusters' : 'give a token' });
  });
  await page.goto(url);
  await page.waitForSelector('#sign-in:not([hidden])');
  for (const name of ['light', 'dark']) {
    await theme(page, name);
    await accessible(page, `the form, ${name}`);
  }
  assert.strictEqual(await page.evaluate(() => document.activeElement.id), 'token');
  await page.keyboard.type('a-secret-token');
  await page.keyboard.press('Tab');
  await page.keyboard.type('team-a');
  await page.keyboard.press('Enter');
  await says(page, '#refusal', 'alice may not list etcdclusters');
  await accessible(page, 'a refusal');
  await screen(page, 'token');
  assert.deepStrictEqual(sent.map(([given]) => given), [undefined, 'Bearer a-secret-token']);
  assert.strictEqual(sent[1][1], '?namespace=team-a');
  const left = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie, location.href, document.body.innerHTML]));
  assert.ok(!left.includes('a-secret-token'), left);
  assert.deepStrictEqual(page.wrong, []);
  await page.close();
}

// Whatever a resource holds is text.
async function escaped(browser, url) {
  const page = await opened(browser, url);
  const evil = '<img src=x onerror="window.broken=1"><b>bold</b>';
  const golden = JSON.parse(readFileSync(process.env.GOLDEN, 'utf8'));
  const poisoned = JSON.parse(JSON.stringify(golden), (key, value) => {
    const names = ['tone', 'time', 'since', 'taken', 'deadline', 'created', 'recoveryPoint', 'observed', 'type', 'role', 'health', 'namespace'];
    return typeof value === 'string' && !names.includes(key) ? evil : value;
  });
  await page.setRequestInterception(true);
  page.on('request', (request) => {
    if (!request.url().includes('/stream')) return request.continue();
    const body = `event: document\ndata: ${JSON.stringify(poisoned)}\n\n`;
    return request.respond({ status: 200, contentType: 'text/event-stream', body });
  });
  await page.goto(`${url}#tenants/demo`);
  await says(page, '#summary', evil);
  const made = await page.evaluate(() => [Boolean(window.broken), document.querySelectorAll('main img, main b').length]);
  assert.deepStrictEqual(made, [false, 0], 'elements were made of what a resource holds');
  await accessible(page, 'a document of another cluster');
  assert.deepStrictEqual(page.wrong, []);
  await page.close();
}

const CLUSTER = {
  apiVersion: 'quorate.dev/v1alpha1',
  kind: 'EtcdCluster',
  metadata: { namespace: 'tenants', name: 'demo', uid: 'u1', generation: 1, resourceVersion: '1' },
  spec: { replicas: 3, version: '0.2.0', storage: { size: '1Gi' } },
  status: { ready: '3/3', summary: '3 voters, demo-1 leads', leader: 'demo-1' },
};

// The operator itself: strangers see nothing, alice what she may list, and nothing more once that is taken from her.
async function operator(browser) {
  const running = new Operator(CLUSTER);
  try {
    const url = await running.start();
    const page = await opened(browser, url, { expected: ['401', '403'] });
    await page.goto(url);
    const enter = async (given, namespace) => {
      await page.waitForSelector('#sign-in:not([hidden])');
      await page.$eval('#namespace', (field) => { field.value = ''; });
      await page.type('#token', given);
      await page.type('#namespace', namespace);
      await page.keyboard.press('Enter');
    };
    await enter('made-up', '');
    await says(page, '#refusal', 'none that the API server knows');
    await enter(TOKEN, '');
    await says(page, '#refusal', 'in all namespaces');
    await enter(TOKEN, 'tenants');
    await says(page, '#clusters', 'demo');
    await says(page, '#summary', '3 voters, demo-1 leads');
    await says(page, '#backups', 'alice may not list etcdbackups in namespace tenants');
    assert.deepStrictEqual([...running.asked].sort(), ['list etcdbackups', 'list etcdclusters', 'list events']);
    await accessible(page, "the operator's page");
    running.right = false;
    await says(page, '#refusal', 'alice may not list etcdclusters in namespace tenants');
    const left = await page.evaluate(() => document.body.innerHTML);
    assert.ok(!left.includes('demo-1'), 'what was shown is still there');
    assert.strictEqual(await page.evaluate(() => sessionStorage.getItem('token')), null);
    assert.deepStrictEqual(page.wrong, []);
    await page.close();
  } catch (error) {
    console.error(running.log);
    throw error;
  } finally {
    await running.stop();
  }
}

async function main() {
  const local = new Local();
  const sandbox = process.getuid() === 0 ? ['--no-sandbox'] : [];
  let browser;
  try {
    const url = await local.start();
    browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: [...sandbox, '--disable-gpu', '--disable-dev-shm-usage'] });
    // A server that is stopped is an error of the network in the browser's log.
    const page = await opened(browser, url, { expected: ['net::ERR_'] });
    const chapters = [
      ['looks: light, dark and narrow', () => looks(page, url)],
      ['keyboard', () => keyboard(page, url)],
      ['a stopped member', () => stopped(page, local)],
      ['a lost connection', () => lost(page, local, url)],
      ['a token', () => token(browser, url)],
      ['text stays text', () => escaped(browser, url)],
      ['the operator, and a right that is taken away', () => operator(browser)],
    ];
    for (const [name, chapter] of chapters) {
      const began = Date.now();
      await chapter();
      assert.deepStrictEqual(page.wrong, [], name);
      console.log(`ok ${name} (${((Date.now() - began) / 1_000).toFixed(1)} s)`);
    }
  } catch (error) {
    console.error(error);
    console.error(local.output);
    process.exitCode = 1;
  } finally {
    await browser?.close();
    await local.stop();
    local.remove();
  }
}

await main();
