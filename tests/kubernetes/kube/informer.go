package main

import (
	"context"
	"fmt"
	"os/signal"
	"sort"
	"strings"
	"syscall"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// informer keeps a cache of the ConfigMaps of a namespace, as controllers do, until it gets a SIGTERM. It prints one
// line each time its cache holds something else than before, and fails unless in the end the cache holds what a
// consistent list shows, object for object at the same version, and is at a later version than it began with.
func informer(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: test-informer KUBECONFIG NAMESPACE")
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer end()
	watches, stop := context.WithCancel(context.Background())
	defer stop()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(args[1]))
	known := factory.Core().V1().ConfigMaps().Informer()
	factory.Start(watches.Done())
	if !cache.WaitForCacheSync(ctx.Done(), known.HasSynced) {
		return fmt.Errorf("the cache was never filled")
	}
	first := known.LastSyncResourceVersion()
	shown := ""
	for until(ctx, pause) {
		if now := contents(known.GetStore().List()); now != shown {
			shown = now
			fmt.Printf("at %s: %s\n", known.LastSyncResourceVersion(), now)
		}
	}
	request, done := request()
	defer done()
	listed, err := client.CoreV1().ConfigMaps(args[1]).List(request, meta.ListOptions{})
	if err != nil {
		return err
	}
	var objects []any
	for i := range listed.Items {
		objects = append(objects, &listed.Items[i])
	}
	wanted := contents(objects)
	if !eventually(func() bool { return contents(known.GetStore().List()) == wanted }) {
		return fmt.Errorf("the cache holds %s, a list shows %s", contents(known.GetStore().List()), wanted)
	}
	last := known.LastSyncResourceVersion()
	if len(last) < len(first) || len(last) == len(first) && last <= first {
		return fmt.Errorf("the cache is at version %s and began at %s", last, first)
	}
	fmt.Printf("the cache holds what a list shows at %s\n", listed.ResourceVersion)
	return nil
}

// contents names the objects with their versions, in order.
func contents(objects []any) string {
	var all []string
	for _, one := range objects {
		if object, ok := one.(*core.ConfigMap); ok && object.Name != "kube-root-ca.crt" {
			all = append(all, object.Name+"@"+object.ResourceVersion)
		}
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}
