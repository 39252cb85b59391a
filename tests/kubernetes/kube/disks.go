package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The provisioner's name, and the two storage classes that name it: a "shared" volume can be
// mounted on every node (all nodes here are one kernel, so a host path follows its pod, as network
// storage would); a "local" volume belongs to the node that its first pod was placed on.
const (
	provisioner      = "quorate.dev/test-disks"
	sharedClass      = "shared"
	localClass       = "local"
	selectedNode     = "volume.kubernetes.io/selected-node"
	provisionedBy    = "pv.kubernetes.io/provisioned-by"
	everyoneMayWrite = 0o777
)

// disks makes and removes the directories behind the test cluster's volumes. Kubernetes' own
// host-path provisioner makes directories that only root may write, and our pods are not root.
func disks(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: test-disks KUBECONFIG ROOT")
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for {
		if err := pass(context.Background(), client, args[1]); err != nil {
			fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), err)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

func pass(ctx context.Context, client kubernetes.Interface, root string) error {
	claims, err := client.CoreV1().PersistentVolumeClaims("").List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	for i := range claims.Items {
		if err := provision(ctx, client, root, &claims.Items[i]); err != nil {
			return err
		}
	}
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	for i := range volumes.Items {
		if err := reclaim(ctx, client, root, &volumes.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func provision(ctx context.Context, client kubernetes.Interface, root string, claim *core.PersistentVolumeClaim) error {
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	node := claim.Annotations[selectedNode]
	if claim.Status.Phase != core.ClaimPending || claim.DeletionTimestamp != nil || node == "" ||
		(class != sharedClass && class != localClass) {
		return nil
	}
	name := "disk-" + string(claim.UID)
	path := filepath.Join(root, name)
	if err := os.MkdirAll(path, everyoneMayWrite); err != nil {
		return err
	}
	if err := os.Chmod(path, everyoneMayWrite); err != nil {
		return err
	}
	mode := core.PersistentVolumeFilesystem
	volume := &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisioner}},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			StorageClassName:              class,
			VolumeMode:                    &mode,
			ClaimRef:                      &core.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		},
	}
	if class == sharedClass {
		volume.Spec.HostPath = &core.HostPathVolumeSource{Path: path}
	} else {
		volume.Spec.Local = &core.LocalVolumeSource{Path: path}
		volume.Spec.NodeAffinity = &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
			MatchExpressions: []core.NodeSelectorRequirement{{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
	if _, err := client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{}); err != nil && !errors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func reclaim(ctx context.Context, client kubernetes.Interface, root string, volume *core.PersistentVolume) error {
	if volume.Annotations[provisionedBy] != provisioner || volume.Status.Phase != core.VolumeReleased || volume.DeletionTimestamp != nil {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(root, volume.Name)); err != nil {
		return err
	}
	err := client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{})
	if errors.IsNotFound(err) {
		return nil
	}
	return err
}
