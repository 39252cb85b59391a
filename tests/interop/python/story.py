"""The test program that every client runs, with the Python client aetcd: story.py HOST:PORT...

Prints a line for each chapter that passed. "please kill the leader" is a request to the test
around it, which answers with a line on standard input.
"""

import asyncio
import sys

import aetcd

PATIENCE = 60
ENDPOINTS = [tuple(endpoint.rsplit(":", 1)) for endpoint in sys.argv[1:]]


def client(number=0):
    host, port = ENDPOINTS[number % len(ENDPOINTS)]
    return aetcd.Client(host=host, port=int(port), timeout=10)


async def please(what):
    print("please", what, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


# Shows KV.Put, KV.Range, KV.DeleteRange: Python client aetcd.
async def keys():
    async with client() as etcd:
        await etcd.put(b"py/a", b"1")
        answer = await etcd.put(b"py/a", b"2", prev_kv=True)
        assert answer.prev_kv.value == b"1", answer
        await etcd.put(b"py/b", b"1")
        # Data written through one member are read from another.
        async with client(1) as other:
            value = await other.get(b"py/a")
            assert value.value == b"2" and value.version == 2, value
            found = await other.get_prefix(b"py/", sort_order="descend", sort_target="key")
            assert [kv.key for kv in found] == [b"py/b", b"py/a"], found
        assert await etcd.replace(b"py/a", b"2", b"3")
        assert not await etcd.replace(b"py/a", b"2", b"4")
        assert await etcd.delete(b"py/b") is not None
        assert await etcd.get(b"py/b") is None
        gone = await etcd.delete_prefix(b"py/")
        assert gone.deleted == 1, gone


# Shows KV.Txn: Python client aetcd.
async def transactions():
    async with client() as etcd:
        async def create(value):
            return await etcd.transaction(
                compare=[etcd.transactions.version(b"py/t") == 0],
                success=[etcd.transactions.put(b"py/t", value)],
                failure=[etcd.transactions.get(b"py/t")],
            )

        assert (await create(b"1"))[0]
        done, answers = await create(b"2")
        assert not done and answers[0][0][0] == b"1", answers


# Shows Lease.LeaseGrant, Lease.LeaseKeepAlive, Lease.LeaseTimeToLive, Lease.LeaseRevoke: Python client aetcd.
async def leases():
    async with client() as etcd, client(2) as other:
        lease = await etcd.lease(600)
        await etcd.put(b"py/l", b"1", lease=lease)
        # Any member renews a lease.
        renewed = await other.refresh_lease(lease.id)
        assert renewed.TTL == 600, renewed
        assert await lease.granted_ttl() == 600
        assert await lease.keys() == [b"py/l"]
        await lease.revoke()
        assert await etcd.get(b"py/l") is None


# Shows KV.Txn, Watch.Watch: Python client aetcd's lock.
async def locks():
    async with client() as one, client(1) as two:
        first, second = one.lock(b"py/lock", ttl=30), two.lock(b"py/lock", ttl=30)
        assert await first.acquire()
        waiting = asyncio.create_task(second.acquire(timeout=30))
        assert await first.is_acquired()
        assert await first.release()
        assert await waiting
        assert not await first.is_acquired()
        assert await second.release()


# Shows KV.Compact: Python client aetcd.
async def compaction():
    async with client() as etcd:
        old = (await etcd.put(b"py/c", b"1")).header.revision
        new = (await etcd.put(b"py/c", b"2")).header.revision
        await etcd.compact(new, physical=True)
        try:
            await etcd.compact(old)
        except aetcd.ClientError as error:
            assert "required revision has been compacted" in str(error), error
        else:
            raise AssertionError("compacted twice")


# Shows Maintenance.Status, Maintenance.Alarm, Maintenance.Defragment, Cluster.MemberList: Python client aetcd.
async def maintenance():
    async with client() as etcd:
        status = await etcd.status()
        assert status.db_size > 0 and status.version.startswith("3."), status
        members = [member async for member in etcd.members()]
        assert len(members) == len(ENDPOINTS), members
        assert [alarm async for alarm in etcd.list_alarms()] == []
        await etcd.defragment()


# Shows Watch.Watch: Python client aetcd resumes over a killed leader.
async def watch_over_kill():
    """This library does not switch to another member by itself, so the program follows its advice:
    watch again, from after the last revision received."""
    last = 30

    async def watch(number, revision):
        seen = []
        while len(seen) < last:
            try:
                async with client(number) as etcd:
                    start = {"start_revision": revision + 1}
                    async for event in await etcd.watch_prefix(b"py/w/", **start):
                        assert event.kv.mod_revision > revision, event
                        revision = event.kv.mod_revision
                        seen.append(event.kv.key)
                        if len(seen) == last:
                            break
            except (aetcd.ClientError, asyncio.TimeoutError):
                number += 1
        return seen

    async with client() as etcd:
        start = (await etcd.put(b"py/start", b"")).header.revision
    # One watch begins at each member, so that one of them loses the leader.
    watching = [asyncio.create_task(watch(number, start)) for number in range(len(ENDPOINTS))]
    member = 0
    for number in range(last):
        if number == 10:
            await please("kill the leader")
        if number == 20:
            await please("restart it")
        key = b"py/w/%02d" % number
        while True:
            try:
                async with client(member) as etcd:
                    await etcd.transaction(
                        compare=[etcd.transactions.version(key) == 0],
                        success=[etcd.transactions.put(key, b"")],
                        failure=[],
                    )
                    break
            except aetcd.ClientError:
                member += 1
    for seen in await asyncio.gather(*watching):
        assert seen == [b"py/w/%02d" % number for number in range(last)], seen


async def main():
    for name, chapter in [
        ("keys", keys),
        ("transactions", transactions),
        ("leases", leases),
        ("locks", locks),
        ("compaction", compaction),
        ("maintenance", maintenance),
        ("a watch over a killed leader", watch_over_kill),
    ]:
        await asyncio.wait_for(chapter(), PATIENCE)
        print("ok:", name, flush=True)


asyncio.run(main())
