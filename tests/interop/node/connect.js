// An application that has nothing but the files of a connection Secret, with the Node client etcd3: connect.js DIRECTORY
// OTHER. The CA of OTHER is not that of the members.
//
// Prints a line for each chapter that passed. A line that begins with "please" is a request to the test around
// it, which answers with a line on standard input.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const readline = require('node:readline');
const { Etcd3 } = require('etcd3');

// On the page docs/tasks/clients.md.
function connect(directory) {
  const read = (name) => fs.readFileSync(`${directory}/${name}`);
  return new Etcd3({
    hosts: String(read('endpoints')).split(','),
    credentials: { rootCertificate: read('ca.crt'), privateKey: read('tls.key'), certChain: read('tls.crt') },
    auth: fs.existsSync(`${directory}/password`)
      ? { username: String(read('username')), password: String(read('password')) }
      : undefined,
  });
}

const PATIENCE = 60_000;
const lines = readline.createInterface({ input: process.stdin });

async function keys(client, prefix) {
  await client.put(`${prefix}a`).value('1');
  assert.deepStrictEqual(await client.getAll().prefix(prefix).strings(), { [`${prefix}a`]: '1' });
}

async function watch(client, prefix) {
  const watcher = await client.watch().prefix(prefix).create();
  const seen = new Promise((resolve, reject) => watcher.on('put', resolve).on('error', reject));
  await client.put(`${prefix}a`).value('2');
  assert.strictEqual((await seen).value.toString(), '2');
  await watcher.cancel();
}

async function lease(client, prefix) {
  const lease = client.lease(600, { autoKeepAlive: false });
  await lease.put(`${prefix}leased`).value('1');
  assert.strictEqual((await lease.keepaliveOnce()).TTL, '600');
  await lease.revoke();
  assert.strictEqual(await client.get(`${prefix}leased`).string(), null);
}

async function transaction(client, prefix) {
  const put = client.put(`${prefix}a`).value('3');
  const answer = await client.if(`${prefix}a`, 'Value', '==', '2').then(put).commit();
  assert.ok(answer.succeeded);
}

async function nothingElse(client) {
  await assert.rejects(client.put('/other/a').value('1').exec(), /permission denied/);
  await assert.rejects(client.get('/other/a').string(), /permission denied/);
}

function please(what) {
  console.log(`please ${what}`);
  return new Promise((resolve) => lines.once('line', resolve));
}

// The members forget the token of a login, as they do in a restart: the library logs in again.
async function forgotten(client, prefix) {
  await please('forget the tokens');
  await client.put(`${prefix}a`).value('4');
}

// Members with a certificate of another CA are not trusted.
async function otherAuthority(other, prefix) {
  const client = connect(other);
  await assert.rejects(client.get(`${prefix}a`).string());
  client.close();
}

// The password before is worth nothing, and the files read again are enough.
async function renewed(directory, prefix) {
  const before = connect(directory);
  await before.put(`${prefix}a`).value('5');
  await please('renew the Secret');
  if (fs.existsSync(`${directory}/password`)) {
    await assert.rejects(before.put(`${prefix}a`).value('6').exec(), /authentication failed/);
  }
  before.close();
  const client = connect(directory);
  await client.put(`${prefix}a`).value('7');
  client.close();
}

async function main([directory, other]) {
  const prefix = `/${fs.readFileSync(`${directory}/username`)}/`;
  setTimeout(() => {
    console.error('took too long');
    process.exit(1);
  }, PATIENCE).unref();
  const client = connect(directory);
  for (const [name, chapter] of [
    ['keys', keys],
    ['a watch', watch],
    ['a lease', lease],
    ['a transaction', transaction],
    ['nothing else', nothingElse],
    ['a lost token', forgotten],
  ]) {
    await chapter(client, prefix);
    console.log(`ok: ${name}`);
  }
  client.close();
  await otherAuthority(other, prefix);
  console.log('ok: another CA');
  await renewed(directory, prefix);
  console.log('ok: a renewed Secret');
}

main(process.argv.slice(2)).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
