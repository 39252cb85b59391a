package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The provisioner's name, and its three storage classes: a "shared" volume can be mounted on every
// node (all nodes here are one kernel, so a host path follows its pod, as network storage would); a
// "local" volume is bound to the node of its first pod, and owned by root: kubelets give such
// volumes to a pod's group for files, as they do with disks; a "sized" one is shared, is limited to
// the size of its claim, and grows with it while pods use it.
const (
	provisioner      = "quorate.dev/test-disks"
	sharedClass      = "shared"
	localClass       = "local"
	sizedClass       = "sized"
	selectedNode     = "volume.kubernetes.io/selected-node"
	provisionedBy    = "pv.kubernetes.io/provisioned-by"
	everyoneMayWrite = 0o777
	rootMayWrite     = 0o755
)

// disks creates and removes the directories behind the test cluster's volumes. Kubernetes' own
// host-path provisioner creates directories that only root may write, our pods are not root, and
// kubelets leave the ownership of a host path unchanged.
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
		if err := grow(ctx, client, root, &claims.Items[i]); err != nil {
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
		(class != sharedClass && class != localClass && class != sizedClass) {
		return nil
	}
	name := "disk-" + string(claim.UID)
	path := filepath.Join(root, name)
	if err := os.MkdirAll(path, everyoneMayWrite); err != nil {
		return err
	}
	if class == sizedClass && !mounted(path) {
		if err := syscall.Mount("quorate-disk", path, "tmpfs", 0, sizeOption(claim)); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
	}
	may := os.FileMode(everyoneMayWrite)
	if class == localClass {
		may = rootMayWrite
	}
	if err := os.Chmod(path, may); err != nil {
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
	if class != localClass {
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

// grow does what a storage driver's resizer does: the disk first, then the volume, then the claim's
// status.
func grow(ctx context.Context, client kubernetes.Interface, root string, claim *core.PersistentVolumeClaim) error {
	wanted := claim.Spec.Resources.Requests[core.ResourceStorage]
	path := filepath.Join(root, "disk-"+string(claim.UID))
	has, known := claim.Status.Capacity[core.ResourceStorage]
	if claim.Status.Phase != core.ClaimBound || claim.DeletionTimestamp != nil || !known || wanted.Cmp(has) <= 0 || !mounted(path) {
		return nil
	}
	if err := syscall.Mount("quorate-disk", path, "tmpfs", syscall.MS_REMOUNT, sizeOption(claim)); err != nil {
		return fmt.Errorf("enlarge %s: %w", path, err)
	}
	volume, err := client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, meta.GetOptions{})
	if err != nil {
		return err
	}
	volume.Spec.Capacity[core.ResourceStorage] = wanted
	if _, err := client.CoreV1().PersistentVolumes().Update(ctx, volume, meta.UpdateOptions{}); err != nil {
		return err
	}
	claim.Status.Capacity[core.ResourceStorage] = wanted
	_, err = client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, meta.UpdateOptions{})
	return err
}

// sizeOption is the mount option that makes a disk as large as its claim requests.
func sizeOption(claim *core.PersistentVolumeClaim) string {
	bytes := claim.Spec.Resources.Requests[core.ResourceStorage]
	return fmt.Sprintf("size=%d", bytes.Value())
}

// mounted returns whether a path is the root of a file system of its own.
func mounted(path string) bool {
	var own, above syscall.Stat_t
	if syscall.Stat(path, &own) != nil || syscall.Stat(filepath.Dir(path), &above) != nil {
		return false
	}
	return own.Dev != above.Dev
}

func reclaim(ctx context.Context, client kubernetes.Interface, root string, volume *core.PersistentVolume) error {
	if volume.Annotations[provisionedBy] != provisioner || volume.Status.Phase != core.VolumeReleased || volume.DeletionTimestamp != nil {
		return nil
	}
	path := filepath.Join(root, volume.Name)
	if mounted(path) {
		if err := syscall.Unmount(path, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	err := client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{})
	if errors.IsNotFound(err) {
		return nil
	}
	return err
}
