// The test program that every client runs, with the Node client etcd3: story.js HOST:PORT...
//
// Prints a line for each chapter that passed. "please kill the leader" is a request to the test
// around it, which answers with a line on standard input.
'use strict';

const assert = require('node:assert');
const readline = require('node:readline');
const { Etcd3, EtcdLockFailedError } = require('etcd3');

const PATIENCE = 60_000;
const hosts = process.argv.slice(2).map((endpoint) => `http://${endpoint}`);
const options = { hosts, dialTimeout: 10_000 };
const client = new Etcd3({
  ...options,
  defaultCallOptions: (context) => (context.isStream ? {} : { deadline: Date.now() + 10_000 }),
});
const lines = readline.createInterface({ input: process.stdin });

function please(what) {
  console.log(`please ${what}`);
  return new Promise((resolve) => lines.once('line', resolve));
}

// Resolves to undefined after a while.
function later(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds).unref());
}

// Shows KV.Put, KV.Range, KV.DeleteRange: Node client etcd3.
async function keys() {
  await client.put('js/a').value('1');
  const previous = await client.put('js/a').value('2').getPrevious();
  assert.strictEqual(previous.value.toString(), '1');
  await client.put('js/b').value('1');
  assert.strictEqual(await client.get('js/a').string(), '2');
  const found = await client.getAll().prefix('js/').sort('Key', 'Descend').keys();
  assert.deepStrictEqual(found, ['js/b', 'js/a']);
  const page = await client.getAll().prefix('js/').limit(1).exec();
  assert.ok(page.more && page.count === '2', JSON.stringify(page));
  await assert.rejects(client.get('js/a').revision(2 ** 40).exec(), /future revision/);
  const gone = await client.delete().prefix('js/').getPrevious();
  assert.strictEqual(gone.length, 2);
}

// Shows KV.Txn: Node client etcd3.
async function transactions() {
  const create = (value) =>
    client
      .if('js/t', 'Create', '==', 0)
      .then(client.put('js/t').value(value))
      .else(client.get('js/t'))
      .commit();
  assert.ok((await create('1')).succeeded);
  const answer = await create('2');
  assert.ok(!answer.succeeded);
  assert.strictEqual(answer.responses[0].response_range.kvs[0].value.toString(), '1');
}

// Shows Lease.LeaseGrant, Lease.LeaseKeepAlive, Lease.LeaseRevoke: Node client etcd3.
async function leases() {
  const lease = client.lease(600, { autoKeepAlive: false });
  await lease.put('js/l').value('1');
  assert.strictEqual((await lease.keepaliveOnce()).TTL, '600');
  await lease.revoke();
  assert.strictEqual(await client.get('js/l').string(), null);
}

// Shows KV.Compact: Node client etcd3.
async function compaction() {
  const old = await client.put('js/c').value('1');
  const last = await client.put('js/c').value('2');
  await client.kv.compact({ revision: last.header.revision, physical: true });
  await assert.rejects(client.get('js/c').revision(old.header.revision).exec(), /has been compacted/);
}

// Shows Maintenance.Status, Maintenance.Alarm, Cluster.MemberList: Node client etcd3.
async function maintenance() {
  const status = await client.maintenance.status();
  assert.ok(status.version.startsWith('3.') && Number(status.dbSize) > 0, JSON.stringify(status));
  const { members } = await client.cluster.memberList({});
  assert.strictEqual(members.length, hosts.length);
  const { alarms } = await client.maintenance.alarm({ action: 0, memberID: 0, alarm: 0 });
  assert.deepStrictEqual(alarms, []);
}

// Three count under one lock.
// Shows KV.Txn: Node client etcd3's lock.
async function locks() {
  let inside = 0;
  const count = () =>
    client.lock('js/lock').ttl(30).do(async () => {
      inside += 1;
      assert.strictEqual(inside, 1);
      await client.put('js/count').value(Number(await client.get('js/count').string()) + 1);
      inside -= 1;
    });
  // The library's lock does not wait: if it is taken, the caller has to retry.
  const patiently = async () => {
    for (;;) {
      try {
        return await count();
      } catch (error) {
        if (!(error instanceof EtcdLockFailedError)) throw error;
        await later(20);
      }
    }
  };
  await Promise.all([patiently(), patiently(), patiently()]);
  assert.strictEqual(await client.get('js/count').string(), '3');
}

// Shows KV.Txn, Watch.Watch: Node client etcd3's election.
async function elections() {
  const election = client.election('js', 30);
  const one = election.campaign('one');
  await one.wait();
  let two = election.campaign('two');
  // The library reports only once that a campaign is won, possibly before the resignation is
  // answered.
  let won = two.wait().then(() => true);
  assert.strictEqual(await election.leader(), 'one');
  await one.resign();
  // A resignation just before the library starts to watch for it may reach its watcher before its
  // own handler is registered: on a timeout the program campaigns again.
  while (!(await Promise.race([won, later(10_000)]))) {
    await two.resign();
    two = election.campaign('two');
    won = two.wait().then(() => true);
  }
  assert.strictEqual(await election.leader(), 'two');
  await two.resign();
}

async function softwareTransactions() {
  const add = () =>
    client.stm({ retries: 100 }).transact(async (tx) => {
      const count = Number(await tx.get('js/stm').string());
      await tx.put('js/stm').value(count + 1);
    });
  await Promise.all([add(), add(), add(), add()]);
  assert.strictEqual(await client.get('js/stm').string(), '4');
}

// Shows Watch.Watch: Node client etcd3 resumes over a killed leader.
async function watchOverKill() {
  const last = 30;
  const seen = [];
  const watcher = await client.watch().prefix('js/w/').withPreviousKV().create();
  const all = new Promise((resolve, reject) => {
    watcher.on('error', reject);
    watcher.on('put', (kv) => {
      seen.push(kv.key.toString());
      if (seen.length === last) resolve();
    });
  });
  for (let number = 0; number < last; number += 1) {
    if (number === 10) await please('kill the leader');
    if (number === 20) await please('restart it');
    const key = `js/w/${String(number).padStart(2, '0')}`;
    for (;;) {
      try {
        await client.if(key, 'Create', '==', 0).then(client.put(key).value('')).commit();
        break;
      } catch (error) {
        await later(50);
      }
    }
  }
  await all;
  const want = [...Array(last).keys()].map((number) => `js/w/${String(number).padStart(2, '0')}`);
  assert.deepStrictEqual(seen, want);
  await watcher.cancel();
}

async function main() {
  const chapters = [
    ['keys', keys],
    ['transactions', transactions],
    ['leases', leases],
    ['compaction', compaction],
    ['maintenance', maintenance],
    ['locks', locks],
    ['elections', elections],
    ['software transactions', softwareTransactions],
    ['a watch over a killed leader', watchOverKill],
  ];
  for (const [name, chapter] of chapters) {
    const late = setTimeout(() => {
      console.error(`${name}: took too long`);
      process.exit(1);
    }, PATIENCE);
    await chapter();
    clearTimeout(late);
    console.log(`ok: ${name}`);
  }
  client.close();
  lines.close();
}

// An abandoned campaign may leave a watcher behind, which would keep the process alive.
main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
