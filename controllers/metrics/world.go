package metrics

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-vm/slipway/controllers/virtualmachineinstance/pod"
	"github.com/slipway-vm/slipway/internal/names"
)

// world is what there is at one moment. Its objects are the cache's own: they are only read.
type world struct {
	vms    []virtv1.VirtualMachine
	vmis   []virtv1.VirtualMachineInstance
	named  map[client.ObjectKey]*virtv1.VirtualMachineInstance // vmis by name
	pods   map[string]*corev1.Pod                              // running launcher pods by their VMI's uid
	claims map[client.ObjectKey]*corev1.PersistentVolumeClaim  // by name

	kubevirts []virtv1.KubeVirt
	snapshots []snapshotv1.VirtualMachineSnapshot
	cdis      []cdiv1.CDI
	volumes   []cdiv1.DataVolume
	crons     []cdiv1.DataImportCron
	profiles  []cdiv1.StorageProfile
	classes   []storagev1.StorageClass
	labels    labelRules // which labels of VMs are told
}

func (w *world) nameInstances() {
	w.named = make(map[client.ObjectKey]*virtv1.VirtualMachineInstance, len(w.vmis))
	for i := range w.vmis {
		w.named[client.ObjectKeyFromObject(&w.vmis[i])] = &w.vmis[i]
	}
}

// lists are what a world is made from.
type lists struct {
	vms       virtv1.VirtualMachineList
	vmis      virtv1.VirtualMachineInstanceList
	pods      corev1.PodList
	claims    corev1.PersistentVolumeClaimList
	kubevirts virtv1.KubeVirtList
	snapshots snapshotv1.VirtualMachineSnapshotList
	cdis      cdiv1.CDIList
	volumes   cdiv1.DataVolumeList
	crons     cdiv1.DataImportCronList
	profiles  cdiv1.StorageProfileList
	classes   storagev1.StorageClassList
}

func (l *lists) all() []client.ObjectList {
	return []client.ObjectList{
		&l.vms, &l.vmis, &l.pods, &l.claims, &l.kubevirts, &l.snapshots, &l.cdis, &l.volumes, &l.crons, &l.profiles, &l.classes,
	}
}

// elementOf is an empty object of what list is a list of.
func elementOf(list client.ObjectList) client.Object {
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	object, _ := reflect.TypeAssert[client.Object](reflect.New(items.Type().Elem()))
	return object
}

// listWorld reads what cached has, and past it the one ConfigMap.
func listWorld(ctx context.Context, cached, live client.Reader, namespace string) (*world, error) {
	from := &lists{}
	for _, list := range from.all() {
		if err := cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %T for metrics: %w", list, err)
		}
	}
	rules, err := readLabelRules(ctx, live, namespace)
	if err != nil { // everything else is known
		log.FromContext(ctx).Error(err, "Metrics are told without labels of VMs")
	}
	w := &world{
		vms: from.vms.Items, vmis: from.vmis.Items, pods: map[string]*corev1.Pod{}, claims: map[client.ObjectKey]*corev1.PersistentVolumeClaim{},
		kubevirts: from.kubevirts.Items, snapshots: from.snapshots.Items, cdis: from.cdis.Items, volumes: from.volumes.Items,
		crons: from.crons.Items, profiles: from.profiles.Items, classes: from.classes.Items, labels: rules,
	}
	w.nameInstances()
	for i := range from.pods.Items {
		one := &from.pods.Items[i]
		if one.Labels[names.LabelPod] == pod.KindLauncher && one.Status.Phase == corev1.PodRunning {
			w.pods[one.Labels[virtv1.CreatedByLabel]] = one
		}
	}
	for i := range from.claims.Items {
		w.claims[client.ObjectKeyFromObject(&from.claims.Items[i])] = &from.claims.Items[i]
	}
	return w, nil
}
