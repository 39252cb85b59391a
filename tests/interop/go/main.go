// Command go runs the test program that every client runs, with etcd's own client library: go
// ENDPOINT... It prints a line for each chapter that passed. The lines "please kill the leader" and
// "please restart it" are requests to the test around it, which answers with a line on standard
// input.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// patience is the time limit of each single step.
const patience = 60 * time.Second

var input = bufio.NewReader(os.Stdin)

func main() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   os.Args[1:],
		DialTimeout: patience,
		Logger:      zap.NewNop(),
	})
	must(err)
	defer client.Close()
	chapters := []struct {
		name string
		run  func(context.Context, *clientv3.Client)
	}{
		{"keys", keys},
		{"transactions", transactions},
		{"leases", leases},
		{"compaction", compaction},
		{"maintenance", maintenance},
		{"locks", locks},
		{"elections", elections},
		{"software transactions", stm},
		{"a watch over a killed leader", watchOverKill},
	}
	for _, chapter := range chapters {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		chapter.run(ctx, client)
		cancel()
		fmt.Println("ok:", chapter.name)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func assert(good bool, what string, arguments ...any) {
	if !good {
		panic(fmt.Sprintf(what, arguments...))
	}
}

// please sends a request to the test around this program.
func please(what string) {
	fmt.Println("please", what)
	_, err := input.ReadString('\n')
	must(err)
}

// Shows KV.Put, KV.Range, KV.RangeStream, KV.DeleteRange: Go client library.
func keys(ctx context.Context, client *clientv3.Client) {
	first, err := client.Put(ctx, "go/a", "1")
	must(err)
	second, err := client.Put(ctx, "go/a", "2", clientv3.WithPrevKV())
	must(err)
	assert(string(second.PrevKv.Value) == "1", "previous: %v", second.PrevKv)
	assert(second.Header.Revision == first.Header.Revision+1, "revisions: %v %v", first, second)
	_, err = client.Put(ctx, "go/b", "1")
	must(err)
	old, err := client.Get(ctx, "go/a", clientv3.WithRev(first.Header.Revision))
	must(err)
	assert(string(old.Kvs[0].Value) == "1", "at an older revision: %v", old)
	page, err := client.Get(ctx, "go/", clientv3.WithPrefix(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
	must(err)
	assert(page.Count == 2 && page.More && string(page.Kvs[0].Key) == "go/b", "page: %v", page)
	_, err = client.Get(ctx, "go/a", clientv3.WithRev(1<<40))
	assert(errors.Is(err, rpctypes.ErrFutureRev), "future: %v", err)
	_, err = client.Put(ctx, "", "")
	assert(errors.Is(err, rpctypes.ErrEmptyKey), "no key: %v", err)
	stream, err := client.GetStream(ctx, "go/", clientv3.WithPrefix())
	must(err)
	whole, err := clientv3.GetStreamToGetResponse(stream)
	must(err)
	assert(len(whole.Kvs) == 2 && whole.Count == 2, "streamed: %v", whole)
	gone, err := client.Delete(ctx, "go/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	must(err)
	assert(gone.Deleted == 2 && len(gone.PrevKvs) == 2, "deleted: %v", gone)
}

// Shows KV.Txn: Go client library, nested.
func transactions(ctx context.Context, client *clientv3.Client) {
	create := func(value string) *clientv3.TxnResponse {
		answer, err := client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision("go/t"), "=", 0)).
			Then(clientv3.OpPut("go/t", value)).
			Else(clientv3.OpGet("go/t"), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet("go/t")}, nil)).
			Commit()
		must(err)
		return answer
	}
	assert(create("1").Succeeded, "the first creates")
	answer := create("2")
	assert(!answer.Succeeded, "the second does not")
	assert(string(answer.Responses[0].GetResponseRange().Kvs[0].Value) == "1", "%v", answer)
	nested := answer.Responses[1].GetResponseTxn()
	assert(string(nested.Responses[0].GetResponseRange().Kvs[0].Value) == "1", "%v", answer)
	_, err := client.Txn(ctx).Then(clientv3.OpPut("go/t", "1"), clientv3.OpPut("go/t", "2")).Commit()
	assert(errors.Is(err, rpctypes.ErrDuplicateKey), "twice: %v", err)
}

// Shows Lease.LeaseGrant, Lease.LeaseKeepAlive, Lease.LeaseTimeToLive, Lease.LeaseLeases, Lease.LeaseRevoke: Go client library.
func leases(ctx context.Context, client *clientv3.Client) {
	lease, err := client.Grant(ctx, 600)
	must(err)
	_, err = client.Put(ctx, "go/l", "1", clientv3.WithLease(lease.ID))
	must(err)
	ctx2, cancel := context.WithCancel(ctx)
	alive, err := client.KeepAlive(ctx2, lease.ID)
	must(err)
	assert((<-alive).TTL == 600, "kept alive")
	cancel()
	left, err := client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	must(err)
	assert(left.GrantedTTL == 600 && left.TTL > 0 && len(left.Keys) == 1, "left: %v", left)
	// The member returns its applied state, which may lag behind what was acknowledged.
	for {
		all, err := client.Leases(ctx)
		must(err)
		if len(all.Leases) == 1 {
			break
		}
		assert(len(all.Leases) == 0, "leases: %v", all)
	}
	_, err = client.Revoke(ctx, lease.ID)
	must(err)
	none, err := client.Get(ctx, "go/l")
	must(err)
	assert(none.Count == 0, "gone with its lease: %v", none)
	_, err = client.Put(ctx, "go/l", "1", clientv3.WithLease(lease.ID))
	assert(errors.Is(err, rpctypes.ErrLeaseNotFound), "revoked: %v", err)
	// Long enough for the put on a busy machine, and watched from the put on, in case it expires
	// early.
	short, err := client.Grant(ctx, 5)
	must(err)
	put, err := client.Put(ctx, "go/short", "1", clientv3.WithLease(short.ID))
	must(err)
	for event := range client.Watch(ctx, "go/short", clientv3.WithRev(put.Header.Revision),
		clientv3.WithFilterPut(), clientv3.WithPrevKV()) {
		must(event.Err())
		assert(string(event.Events[0].PrevKv.Value) == "1", "expired: %v", event.Events)
		break
	}
}

// Shows KV.Compact, Watch.Watch: Go client library knows the compacted error.
func compaction(ctx context.Context, client *clientv3.Client) {
	put, err := client.Put(ctx, "go/c", "1")
	must(err)
	_, err = client.Put(ctx, "go/c", "2")
	must(err)
	last, err := client.Put(ctx, "go/c", "3")
	must(err)
	_, err = client.Compact(ctx, last.Header.Revision, clientv3.WithCompactPhysical())
	must(err)
	_, err = client.Compact(ctx, last.Header.Revision)
	assert(errors.Is(err, rpctypes.ErrCompacted), "again: %v", err)
	_, err = client.Get(ctx, "go/c", clientv3.WithRev(put.Header.Revision))
	assert(errors.Is(err, rpctypes.ErrCompacted), "read: %v", err)
	// A member that has not applied the compaction yet still returns the old events.
	for {
		short, cancel := context.WithCancel(ctx)
		event := <-client.Watch(short, "go/c", clientv3.WithRev(put.Header.Revision))
		cancel()
		must(ctx.Err())
		if event.CompactRevision == 0 {
			continue
		}
		assert(event.CompactRevision == last.Header.Revision, "watched: %v", event)
		assert(errors.Is(event.Err(), rpctypes.ErrCompacted), "watched: %v", event.Err())
		break
	}
}

// Shows Maintenance.Status, Maintenance.HashKV, Maintenance.Alarm, Maintenance.Defragment, Cluster.MemberList: Go client library.
func maintenance(ctx context.Context, client *clientv3.Client) {
	members, err := client.MemberList(ctx)
	must(err)
	assert(len(members.Members) == len(os.Args)-1, "members: %v", members)
	// Above the compacted revision: at that revision etcd's answer depends on the time of the request.
	put, err := client.Put(ctx, "go/m", "1")
	must(err)
	revision := put.Header.Revision
	var hashes []uint32
	for _, endpoint := range os.Args[1:] {
		status, err := client.Status(ctx, endpoint)
		must(err)
		assert(status.Leader != 0 && status.DbSize > 0 && !status.IsLearner, "status: %v", status)
		hash, err := client.HashKV(ctx, endpoint, revision)
		for errors.Is(err, rpctypes.ErrFutureRev) {
			hash, err = client.HashKV(ctx, endpoint, revision)
		}
		must(err)
		hashes = append(hashes, hash.Hash)
		_, err = client.Defragment(ctx, endpoint)
		must(err)
	}
	assert(hashes[0] == hashes[1] && hashes[1] == hashes[2], "hashes: %v", hashes)
	alarms, err := client.AlarmList(ctx)
	must(err)
	assert(len(alarms.Alarms) == 0, "alarms: %v", alarms)
}

// locks lets three sessions count under one lock.
// Shows KV.Txn, Watch.Watch: Go client library's mutex.
func locks(ctx context.Context, client *clientv3.Client) {
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
			must(err)
			defer session.Close()
			mutex := concurrency.NewMutex(session, "go/lock")
			for range 5 {
				must(mutex.Lock(ctx))
				count := 0
				old, err := client.Get(ctx, "go/count")
				must(err)
				if len(old.Kvs) > 0 {
					count, err = strconv.Atoi(string(old.Kvs[0].Value))
					must(err)
				}
				_, err = client.Put(ctx, "go/count", strconv.Itoa(count+1))
				must(err)
				must(mutex.Unlock(ctx))
			}
		})
	}
	group.Wait()
	count, err := client.Get(ctx, "go/count")
	must(err)
	assert(string(count.Kvs[0].Value) == "15", "counted: %v", count)
}

// Shows KV.Txn, Watch.Watch: Go client library's election.
func elections(ctx context.Context, client *clientv3.Client) {
	one, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	must(err)
	two, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	must(err)
	first, second := concurrency.NewElection(one, "go/elect"), concurrency.NewElection(two, "go/elect")
	must(first.Campaign(ctx, "one"))
	won := make(chan error, 1)
	go func() { won <- second.Campaign(ctx, "two") }()
	leader, err := second.Leader(ctx)
	must(err)
	assert(string(leader.Kvs[0].Value) == "one", "leader: %v", leader)
	// The session ends and its lease with it, so the other wins.
	must(one.Close())
	must(<-won)
	leader, err = second.Leader(ctx)
	must(err)
	assert(string(leader.Kvs[0].Value) == "two", "leader: %v", leader)
	must(second.Resign(ctx))
	must(two.Close())
}

// Shows KV.Txn: Go client library's software transactions.
func stm(ctx context.Context, client *clientv3.Client) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 5 {
				_, err := concurrency.NewSTM(client, func(stm concurrency.STM) error {
					count, _ := strconv.Atoi(stm.Get("go/stm"))
					stm.Put("go/stm", strconv.Itoa(count+1))
					return nil
				}, concurrency.WithAbortContext(ctx))
				must(err)
			}
		})
	}
	group.Wait()
	count, err := client.Get(ctx, "go/stm")
	must(err)
	assert(string(count.Kvs[0].Value) == "20", "counted: %v", count)
}

// watchOverKill watches while the leader is killed and while it comes back: every event once, in
// order, and the lease stays alive.
// Shows Watch.Watch, Lease.LeaseKeepAlive: Go client library resumes over a killed leader, each event once.
func watchOverKill(ctx context.Context, client *clientv3.Client) {
	lease, err := client.Grant(ctx, 30)
	must(err)
	alive, err := client.KeepAlive(ctx, lease.ID)
	must(err)
	events := client.Watch(ctx, "go/w/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	const last = 30
	for number := range last {
		if number == 10 {
			please("kill the leader")
		}
		if number == 20 {
			please("restart it")
		}
		// A put that failed may have been applied; a create that is repeated is not applied twice.
		key := fmt.Sprintf("go/w/%02d", number)
		for {
			short, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, err := client.Txn(short).
				If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, "", clientv3.WithLease(lease.ID))).
				Commit()
			cancel()
			if err == nil {
				break
			}
			must(ctx.Err())
		}
	}
	seen := 0
	for answer := range events {
		must(answer.Err())
		for _, event := range answer.Events {
			want := fmt.Sprintf("go/w/%02d", seen)
			assert(string(event.Kv.Key) == want, "watched %s, not %s", event.Kv.Key, want)
			seen++
		}
		if seen == last {
			break
		}
	}
	assert(seen == last, "watched %d", seen)
	_, open := <-alive
	assert(open, "the lease was kept alive")
	_, err = client.Revoke(ctx, lease.ID)
	must(err)
}
