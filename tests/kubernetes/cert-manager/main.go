// cert-manager's own controllers, as far as certificates of a self-signed and of a CA issuer need
// them: the scenario cert-manager runs them beside the test cluster. There is no webhook, no CA
// injector and no leader election, and no other kind of issuer.
//
//	cert-manager KUBECONFIG
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	requestsca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	requestsself "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"

	// the kinds of issuers that the controllers find by name
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

// The defaults of the controllers' own program.
const (
	requestsPerSecond = 20
	burst             = 50
	firstPause        = time.Hour
	longestPause      = 32 * time.Hour
	workers           = 5
)

var wanted = []string{
	approver.ControllerName,
	requestsca.CRControllerName,
	requestsself.CRControllerName,
	issuing.ControllerName,
	keymanager.ControllerName,
	readiness.ControllerName,
	requestmanager.ControllerName,
	revisionmanager.ControllerName,
	trigger.ControllerName,
	issuers.ControllerName,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: cert-manager KUBECONFIG")
	}
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         args[0],
		KubernetesAPIQPS:   requestsPerSecond,
		KubernetesAPIBurst: burst,
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/"},
			CertificateRequestMinimumBackoffDuration: firstPause,
			CertificateRequestMaximumBackoffDuration: longestPause,
		},
	})
	if err != nil {
		return err
	}
	ended := make(chan error, len(wanted))
	var running []controller.Interface
	for _, name := range wanted {
		made, known := controller.Known()[name]
		if !known {
			return fmt.Errorf("there is no controller %s", name)
		}
		one, err := made(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		running = append(running, one)
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	// the informers that the controllers requested while they were created
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	for i, one := range running {
		go func() {
			err := one.Run(workers, ctx)
			if err == nil && ctx.Err() == nil {
				err = errors.New("it ended by itself")
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", wanted[i], err)
			}
			ended <- err
		}()
	}
	var failed []error
	for range running {
		err := <-ended
		if err != nil && ctx.Err() == nil {
			return err
		}
		failed = append(failed, err)
	}
	return errors.Join(slices.DeleteFunc(failed, func(err error) bool { return err == nil })...)
}
