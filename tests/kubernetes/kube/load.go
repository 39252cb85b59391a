package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The parts of the load. Together they are what a small control plane requests of its API server:
// short-lived objects, objects with many watchers, and heartbeats.
const (
	loadNamespace = "load"
	workers       = 6
	heartbeats    = 10
	followers     = 3
	pause         = 20 * time.Millisecond
	pulseEvery    = 50 * time.Millisecond
	patience      = 30 * time.Second
)

// load makes all kinds of requests of clients to an API server, with the ordinary client library,
// until its seconds are over or it gets a SIGTERM, and counts. No request is repeated: an attempt
// that fails is a failed request, whatever the library does about it. The last line is the number
// of failures. With LOAD_SERIES=FILE it writes the figures of each quarter of a second there, for a
// plot.
func load(args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("usage: test-load KUBECONFIG [SECONDS]")
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer end()
	if len(args) == 2 {
		seconds, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
	}
	l := &loader{counts: &counts{verbs: map[string]*verb{}}}
	config.QPS, config.Burst = -1, 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, l.counts} })
	if l.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	return l.run(ctx)
}

type loader struct {
	client kubernetes.Interface
	counts *counts
	pulse  int
}

func (l *loader) run(ctx context.Context) error {
	if err := l.prepare(); err != nil {
		return err
	}
	watches, stop := context.WithCancel(context.Background())
	defer stop()
	var all []*follower
	for i := range followers {
		f := &follower{loader: l, every: i == 0}
		all = append(all, f)
		go f.follow(watches)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithNamespace(loadNamespace))
	known := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(watches.Done())
	for _, f := range all {
		if !eventually(f.follows) {
			return fmt.Errorf("a watch did not begin within %v", patience)
		}
	}
	var group sync.WaitGroup
	began := time.Now()
	group.Go(func() { l.beat(ctx) })
	for i := range workers {
		group.Go(func() { l.work(ctx, i) })
	}
	for i := range heartbeats {
		group.Go(func() { l.heartbeat(ctx, i) })
	}
	group.Wait()
	lasted := time.Since(began)
	if file := os.Getenv("LOAD_SERIES"); file != "" {
		if err := l.counts.write(file, began, lasted); err != nil {
			return err
		}
	}
	for i, f := range all {
		if !eventually(func() bool { return f.seen() == l.pulse }) {
			l.counts.wrong("watch %d is at %d of %d changes %v after the last one", i, f.seen(), l.pulse, patience)
		}
	}
	l.compare(func() []string { return known.GetStore().ListKeys() })
	stop()
	return l.report(lasted, all)
}

func (l *loader) prepare() error {
	ctx, done := request()
	defer done()
	namespace := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: loadNamespace}}
	if _, err := l.client.CoreV1().Namespaces().Create(ctx, namespace, meta.CreateOptions{}); err != nil && !errors.IsAlreadyExists(err) {
		return err
	}
	maps := l.client.CoreV1().ConfigMaps(loadNamespace)
	if err := maps.Delete(ctx, "pulse", meta.DeleteOptions{}); err != nil && !errors.IsNotFound(err) {
		return err
	}
	first := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "pulse"}, Data: map[string]string{"n": "0"}}
	if _, err := maps.Create(ctx, first, meta.CreateOptions{}); err != nil {
		return err
	}
	for i := range heartbeats {
		lease := &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		_, err := l.client.CoordinationV1().Leases(loadNamespace).Create(ctx, lease, meta.CreateOptions{})
		if err != nil && !errors.IsAlreadyExists(err) {
			return err
		}
	}
	l.counts.forget() // what was made before is not there to be counted
	return nil
}

// beat changes one object again and again: every follower has to see each change, once and in
// order.
func (l *loader) beat(ctx context.Context) {
	maps := l.client.CoreV1().ConfigMaps(loadNamespace)
	for until(ctx, pulseEvery) {
		request, done := request()
		patch := fmt.Sprintf(`{"data":{"n":"%d"}}`, l.pulse+1)
		_, err := maps.Patch(request, "pulse", types.MergePatchType, []byte(patch), meta.PatchOptions{})
		done()
		if err != nil { // counted; whether it was done is what the next read of the object shows
			l.lookAtPulse()
			continue
		}
		l.pulse++
	}
}

func (l *loader) lookAtPulse() {
	request, done := request()
	defer done()
	now, err := l.client.CoreV1().ConfigMaps(loadNamespace).Get(request, "pulse", meta.GetOptions{})
	if err == nil {
		l.pulse = number(now)
	}
}

// work creates and deletes objects of its own. Its reads have to return its writes.
func (l *loader) work(ctx context.Context, worker int) {
	maps := l.client.CoreV1().ConfigMaps(loadNamespace)
	mine := map[string]string{"worker": strconv.Itoa(worker)}
	selector := meta.ListOptions{LabelSelector: "worker=" + strconv.Itoa(worker)}
	for round := 0; until(ctx, pause); round++ {
		request, done := request()
		name := fmt.Sprintf("w%d-%d-%d", worker, time.Now().UnixNano(), round)
		object := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: name, Labels: mine}, Data: map[string]string{"text": strings.Repeat("x", 500)}}
		made, err := maps.Create(request, object, meta.CreateOptions{})
		if err != nil {
			done()
			continue
		}
		until(ctx, pause)
		if listed, err := maps.List(request, selector); err == nil && !contains(listed.Items, name) {
			l.counts.wrong("a list does not show %s, which was made before it", name)
		}
		until(ctx, pause)
		made.Data["text"] = "changed"
		if changed, err := maps.Update(request, made, meta.UpdateOptions{}); err == nil {
			if read, err := maps.Get(request, name, meta.GetOptions{}); err == nil && read.ResourceVersion != changed.ResourceVersion {
				l.counts.wrong("%s reads as of %s right after it was changed at %s", name, read.ResourceVersion, changed.ResourceVersion)
			}
		}
		until(ctx, pause)
		_ = maps.Delete(request, name, meta.DeleteOptions{})
		done()
	}
}

// heartbeat renews a lease once a second, like a kubelet.
func (l *loader) heartbeat(ctx context.Context, node int) {
	leases := l.client.CoordinationV1().Leases(loadNamespace)
	for until(ctx, time.Second) {
		request, done := request()
		if lease, err := leases.Get(request, fmt.Sprintf("node-%d", node), meta.GetOptions{}); err == nil {
			now := meta.NowMicro()
			lease.Spec.RenewTime = &now
			_, _ = leases.Update(request, lease, meta.UpdateOptions{})
		}
		done()
	}
}

// compare checks whether an informer's cache equals a list, once nothing changes any more.
func (l *loader) compare(known func() []string) {
	request, done := request()
	defer done()
	listed, err := l.client.CoreV1().ConfigMaps(loadNamespace).List(request, meta.ListOptions{})
	if err != nil {
		return
	}
	var names []string
	for i := range listed.Items {
		names = append(names, loadNamespace+"/"+listed.Items[i].Name)
	}
	sort.Strings(names)
	same := func() bool {
		seen := known()
		sort.Strings(seen)
		return strings.Join(seen, " ") == strings.Join(names, " ")
	}
	if !eventually(same) {
		l.counts.wrong("an informer knows %d objects, a list shows %d", len(known()), len(names))
	}
}

func (l *loader) report(lasted time.Duration, all []*follower) error {
	events, resumed := 0, 0
	for _, f := range all {
		events += f.events
		resumed += f.resumed
	}
	c := l.counts
	c.Lock()
	defer c.Unlock()
	var names []string
	total := 0
	for name := range c.verbs {
		names = append(names, name)
		total += c.verbs[name].requests
	}
	sort.Strings(names)
	for _, name := range names {
		v := c.verbs[name]
		if name == "watch" {
			fmt.Printf("%-7s %6d requests\n", name, v.requests)
			continue
		}
		fmt.Printf("%-7s %6d requests, longest %4d ms, %d failed\n", name, v.requests, v.longest.Milliseconds(), v.failed)
	}
	fmt.Printf("%d watches saw %d changes each, %d events in all; %d times one ended and went on\n", len(all), l.pulse, events, resumed)
	for _, words := range c.words {
		fmt.Println(words)
	}
	if total == 0 || l.pulse == 0 {
		return fmt.Errorf("nothing was asked for")
	}
	fmt.Printf("%d requests in %d s, %d of them changes of one object that was watched: %d failed requests\n", total, int(lasted.Seconds()), l.pulse, c.failed)
	if c.failed > 0 || c.wrongs > 0 {
		return fmt.Errorf("%d requests failed, %d answers were wrong", c.failed, c.wrongs)
	}
	return nil
}

// A follower watches the changes of "pulse": alone, or among all objects of the namespace.
type follower struct {
	*loader
	every   bool
	lock    sync.Mutex
	begun   bool
	last    int
	events  int
	resumed int
}

func (f *follower) follows() bool { f.lock.Lock(); defer f.lock.Unlock(); return f.begun }
func (f *follower) seen() int     { f.lock.Lock(); defer f.lock.Unlock(); return f.last }

// follow continues where a watch ended; it never lists, so a missing change cannot go unnoticed.
func (f *follower) follow(ctx context.Context) {
	maps := f.client.CoreV1().ConfigMaps(loadNamespace)
	first, err := maps.List(ctx, meta.ListOptions{})
	if err != nil {
		f.counts.wrong("a list before a watch failed: %v", err)
		return
	}
	options := meta.ListOptions{ResourceVersion: first.ResourceVersion, AllowWatchBookmarks: true}
	if !f.every {
		options.FieldSelector = "metadata.name=pulse"
	}
	for ctx.Err() == nil {
		w, err := maps.Watch(ctx, options)
		if err != nil {
			if ctx.Err() == nil && errors.IsResourceExpired(err) {
				f.counts.wrong("a watch cannot go on: %v", err)
				return
			}
			until(ctx, 100*time.Millisecond)
			continue
		}
		f.lock.Lock()
		f.begun = true
		f.lock.Unlock()
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				f.counts.wrong("a watch received %v", errors.FromObject(event.Object))
				break
			}
			f.take(event, &options)
		}
		w.Stop()
		if ctx.Err() == nil {
			f.lock.Lock()
			f.resumed++
			f.lock.Unlock()
		}
	}
}

func (f *follower) take(event watch.Event, options *meta.ListOptions) {
	object, ok := event.Object.(*core.ConfigMap)
	if !ok {
		return
	}
	options.ResourceVersion = object.ResourceVersion
	f.lock.Lock()
	defer f.lock.Unlock()
	if event.Type == watch.Bookmark {
		return
	}
	f.events++
	if object.Name != "pulse" {
		return
	}
	if n := number(object); n != f.last+1 {
		f.counts.wrong("a watch saw change %d after %d", n, f.last)
		f.last = n
	} else {
		f.last = n
	}
}

type verb struct {
	requests, failed int
	longest          time.Duration
}

type counts struct {
	sync.Mutex
	verbs          map[string]*verb
	failed, wrongs int
	words          []string
	moments        []moment
}

// moment is one request that is no watch: its start, its duration, and whether it failed.
type moment struct {
	began  time.Time
	took   time.Duration
	failed bool
}

// write writes a row for each quarter of a second, in the format of docs/data.
func (c *counts) write(file string, start time.Time, lasted time.Duration) error {
	const piece = 250 * time.Millisecond
	pieces := make([][]moment, lasted/piece)
	c.Lock()
	for _, m := range c.moments {
		if at := m.began.Sub(start); at >= 0 && int(at/piece) < len(pieces) {
			pieces[at/piece] = append(pieces[at/piece], m)
		}
	}
	c.Unlock()
	text := "second,writes,median_ms,longest_ms,failed\n"
	for i, all := range pieces {
		slices.SortFunc(all, func(a, b moment) int { return int(a.took - b.took) })
		median, longest, failed := 0.0, 0.0, 0
		for _, m := range all {
			longest = float64(m.took.Microseconds()) / 1000
			if m.failed {
				failed++
			}
		}
		if len(all) > 0 {
			median = float64(all[len(all)/2].took.Microseconds()) / 1000
		}
		text += fmt.Sprintf("%.2f,%d,%.1f,%.1f,%d\n", float64(i)*piece.Seconds(), len(all), median, longest, failed)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func (c *counts) forget() {
	c.Lock()
	defer c.Unlock()
	c.verbs, c.failed, c.words, c.moments = map[string]*verb{}, 0, nil, nil
}

func (c *counts) note(words string) {
	if len(c.words) < 20 {
		c.words = append(c.words, time.Now().Format("15:04:05.000")+"  "+words)
	}
}

func (c *counts) wrong(format string, args ...any) {
	c.Lock()
	defer c.Unlock()
	c.wrongs++
	c.note("WRONG: " + fmt.Sprintf(format, args...))
}

// counting counts every attempt, before the client library may repeat it.
type counting struct {
	next   http.RoundTripper
	counts *counts
}

func (t counting) RoundTrip(r *http.Request) (*http.Response, error) {
	name := strings.ToLower(r.Method)
	watched := r.URL.Query().Get("watch") != ""
	switch {
	case watched:
		name = "watch"
	case name == "get" && r.URL.Query().Has("labelSelector"):
		name = "list"
	}
	began := time.Now()
	answer, err := t.next.RoundTrip(r)
	took := time.Since(began)
	why := ""
	switch {
	case err != nil && r.Context().Err() == context.Canceled:
	case err != nil:
		why = err.Error()
	case answer.StatusCode >= 400:
		why = answer.Status
	}
	c := t.counts
	c.Lock()
	defer c.Unlock()
	v := c.verbs[name]
	if v == nil {
		v = &verb{}
		c.verbs[name] = v
	}
	v.requests++
	v.longest = max(v.longest, took)
	if !watched {
		c.moments = append(c.moments, moment{began, took, why != ""})
	}
	if why != "" {
		v.failed++
		c.failed++
		c.note(fmt.Sprintf("FAILED after %d ms: %s %s: %s", took.Milliseconds(), r.Method, r.URL.Path, why))
	}
	return answer, err
}

func request() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*patience)
}

// until waits, and returns whether there is more to do.
func until(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

func eventually(holds func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return true
		}
	}
	return false
}

func number(object *core.ConfigMap) int {
	n, _ := strconv.Atoi(object.Data["n"])
	return n
}

func contains(objects []core.ConfigMap, name string) bool {
	for i := range objects {
		if objects[i].Name == name {
			return true
		}
	}
	return false
}
