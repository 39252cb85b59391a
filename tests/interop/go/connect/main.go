// Command connect is an application that has nothing but the files of a connection Secret, with etcd's own client
// library: connect DIRECTORY OTHER. The CA of OTHER is not that of the members. It prints a line for each chapter that
// passed. A line that begins with "please" is a request to the test around it, which answers with a line on standard
// input.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// patience is the time limit of all chapters together.
const patience = 60 * time.Second

// On the page docs/tasks/clients.md.
func connect(directory string) (*clientv3.Client, error) {
	read := func(name string) string {
		text, _ := os.ReadFile(directory + "/" + name)
		return string(text) // empty without such a file: without a password the certificate counts
	}
	files := transport.TLSInfo{TrustedCAFile: directory + "/ca.crt", CertFile: directory + "/tls.crt", KeyFile: directory + "/tls.key"}
	tls, err := files.ClientConfig()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: strings.Split(read("endpoints"), ","), TLS: tls,
		Username: read("username"), Password: read("password"), DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

func main() {
	directory, other := os.Args[1], os.Args[2]
	user, err := os.ReadFile(directory + "/username")
	must(err)
	prefix := "/" + string(user) + "/"
	client, err := connect(directory)
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, chapter := range []struct {
		name string
		run  func(context.Context, *clientv3.Client, string)
	}{
		{"keys", keys}, {"a watch", watch}, {"a lease", lease}, {"a transaction", transaction}, {"nothing else", nothingElse},
		{"a lost token", forgotten},
	} {
		chapter.run(ctx, client, prefix)
		fmt.Println("ok:", chapter.name)
	}
	must(client.Close())
	otherAuthority(ctx, other, prefix)
	fmt.Println("ok: another CA")
	renewed(ctx, directory, prefix)
	fmt.Println("ok: a renewed Secret")
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

func keys(ctx context.Context, client *clientv3.Client, prefix string) {
	_, err := client.Put(ctx, prefix+"a", "1")
	must(err)
	got, err := client.Get(ctx, prefix, clientv3.WithPrefix())
	must(err)
	assert(got.Count == 1 && string(got.Kvs[0].Value) == "1", "got %v", got)
}

func watch(ctx context.Context, client *clientv3.Client, prefix string) {
	put, err := client.Put(ctx, prefix+"a", "2")
	must(err)
	answer := <-client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(put.Header.Revision))
	must(answer.Err())
	assert(string(answer.Events[0].Kv.Value) == "2", "watched %v", answer)
}

func lease(ctx context.Context, client *clientv3.Client, prefix string) {
	lease, err := client.Grant(ctx, 600)
	must(err)
	_, err = client.Put(ctx, prefix+"leased", "1", clientv3.WithLease(lease.ID))
	must(err)
	alive, err := client.KeepAlive(ctx, lease.ID)
	must(err)
	assert((<-alive).TTL == 600, "kept alive")
	_, err = client.Revoke(ctx, lease.ID)
	must(err)
	got, err := client.Get(ctx, prefix+"leased")
	must(err)
	assert(got.Count == 0, "gone with its lease: %v", got)
}

func transaction(ctx context.Context, client *clientv3.Client, prefix string) {
	answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Value(prefix+"a"), "=", "2")).
		Then(clientv3.OpPut(prefix+"a", "3")).Commit()
	must(err)
	assert(answer.Succeeded, "%v", answer)
}

func nothingElse(ctx context.Context, client *clientv3.Client, _ string) {
	_, err := client.Put(ctx, "/other/a", "1")
	assert(errors.Is(err, rpctypes.ErrPermissionDenied), "put: %v", err)
	_, err = client.Get(ctx, "/other/a")
	assert(errors.Is(err, rpctypes.ErrPermissionDenied), "get: %v", err)
	answer := <-client.Watch(ctx, "/other/a")
	assert(strings.Contains(fmt.Sprint(answer.Err()), "permission denied"), "watch: %v", answer.Err())
}

var input = bufio.NewReader(os.Stdin)

func please(what string) {
	fmt.Println("please", what)
	_, err := input.ReadString('\n')
	must(err)
}

// forgotten: the members forget the token of a login, as they do in a restart, and the library logs in again.
func forgotten(ctx context.Context, client *clientv3.Client, prefix string) {
	please("forget the tokens")
	_, err := client.Put(ctx, prefix+"a", "4")
	must(err)
}

// otherAuthority shows that members with a certificate of another CA are not trusted.
func otherAuthority(ctx context.Context, other, prefix string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := connect(other)
	if err != nil {
		return
	}
	defer client.Close()
	_, err = client.Get(ctx, prefix+"a")
	assert(err != nil, "a certificate of another CA was accepted")
}

// renewed shows that the password before is worth nothing, and that the files read again are enough.
func renewed(ctx context.Context, directory, prefix string) {
	before, err := connect(directory)
	must(err)
	defer before.Close()
	please("renew the Secret")
	if before.Password != "" {
		_, err = before.Put(ctx, prefix+"a", "5")
		assert(errors.Is(err, rpctypes.ErrAuthFailed), "the password before: %v", err)
	}
	client, err := connect(directory)
	must(err)
	defer client.Close()
	_, err = client.Put(ctx, prefix+"a", "6")
	must(err)
}
