//go:build e2e

package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/controllers/virtualmachinerestore"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("a restore in the places of a VM's disks", func() {
	It("is brought to its end when virt-controller is killed within it, and the disks are the snapshot's", func(ctx context.Context) {
		if suite.World.Existing {
			Skip("the node of an existing cluster is out of reach")
		}
		server := newHeldImage()
		serving, stop := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(stop)
		root, err := suite.World.Serve(serving, server)
		Expect(err).NotTo(HaveOccurred())
		ns := suite.Namespace(ctx)
		disks := []string{"file", "device"}
		vm := fixture.VM(ns, "web", fixture.Strategy(virtv1.RunStrategyHalted),
			fixture.Template("file", fixture.DataVolume(ns, "file", "64Mi", fixture.HTTP(root+"/file"))),
			fixture.Template("device", fixture.DataVolume(ns, "device", "64Mi", fixture.HTTP(root+"/device"), fixture.Block())))
		for i := range vm.Spec.DataVolumeTemplates {
			vm.Spec.DataVolumeTemplates[i].Annotations = map[string]string{names.AnnotationBind: "true"} // no guest does it
		}
		suite.Create(ctx, vm)
		for _, name := range disks {
			suite.DataVolume(ctx, ns, name, cdiv1.Succeeded)
		}
		suite.Snapshot(ctx, ns, "before", "web")
		for _, name := range disks {
			spoil(diskFile(ctx, ns, name))
		}

		for n, moment := range momentsOfRestore {
			By(fmt.Sprintf("killing virt-controller when %s", moment.when))
			waitReady(ctx, "virt-controller")
			before := restoring{claims: claimsIn(ctx, ns)}
			restore := suite.Restore(ns, fmt.Sprintf("back-%d", n), "web", "before")
			restore.Spec.VolumeRestorePolicy = new(snapshotv1.VolumeRestorePolicyInPlace)
			suite.Create(ctx, restore)
			Eventually(func() bool { return moment.come(before, lookAt(ctx, restore)) }).WithContext(ctx).WithTimeout(suite.BoundEnd).
				WithPolling(20*time.Millisecond).Should(BeTrue(), "waiting until %s", moment.when)
			// The kubelet would start a process again after a pause that was killed a second time.
			if n%2 == 0 {
				killPart("virt-controller").strike(ctx, nil, nil)
			} else {
				killPods(ctx, "virt-controller")
			}
			expectReplaced(ctx, suite.Restored(ctx, restore), before)
		}
		waitReady(ctx, "virt-controller")

		By("starting the VM, whose disks get their volumes; its firmware finds no system on them")
		start := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runStrategy":"Always"}}`))
		Expect(suite.World.Client.Patch(ctx, vm, start)).To(Succeed())
		expectVMI(ctx, ns, "web", func(vmi *virtv1.VirtualMachineInstance) bool { return vmi.Status.Phase == virtv1.Running })
		for _, name := range disks {
			Expect(bytes.Equal(beginning(diskFile(ctx, ns, name), len(server.content)), server.content)).To(BeTrue(), "disk %s is the snapshot's", name)
		}
	}, SpecTimeout(40*time.Minute))
})

// restoring is what can be seen of a restore from outside.
type restoring struct {
	claims map[string]types.UID // that are not going, by name
	// locked says that the VM is the restore's, restored that it has the restored definition, from which on it may be unlocked.
	locked, restored bool
}

// fresh are the claims that were not there before.
func (r restoring) fresh(before restoring) int {
	n := 0
	for name, uid := range r.claims {
		if before.claims[name] != uid {
			n++
		}
	}
	return n
}

// momentsOfRestore are those at which virt-controller is killed, in the order in which a restore comes to them. None passes.
var momentsOfRestore = []struct {
	when string
	come func(before, now restoring) bool
}{
	{"the VM is locked", func(_, now restoring) bool { return now.locked || now.restored }},
	{"an old claim goes", func(before, now restoring) bool { return len(now.claims) < len(before.claims) || now.fresh(before) > 0 }},
	{"a new claim is there", func(before, now restoring) bool { return now.fresh(before) > 0 }},
	{"the VM has its definition", func(_, now restoring) bool { return now.restored }},
}

// lookAt looks at what a restore has come to.
func lookAt(ctx context.Context, restore *snapshotv1.VirtualMachineRestore) restoring {
	GinkgoHelper()
	vm := &virtv1.VirtualMachine{}
	Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: restore.Namespace, Name: restore.Spec.Target.Name}, vm)).To(Succeed())
	return restoring{
		claims: claimsIn(ctx, restore.Namespace),
		locked: vm.Status.RestoreInProgress != nil, restored: vm.Annotations[virtualmachinerestore.AnnotationLast] == markOf(restore),
	}
}

// markOf is the restore as its VM says from which one it is.
func markOf(restore *snapshotv1.VirtualMachineRestore) string {
	return restore.Name + "-" + string(restore.UID)
}

// claimsIn are the uids of a namespace's claims that are not going, by name.
func claimsIn(ctx context.Context, ns string) map[string]types.UID {
	GinkgoHelper()
	var claims corev1.PersistentVolumeClaimList
	Expect(suite.World.Client.List(ctx, &claims, client.InNamespace(ns))).To(Succeed())
	found := map[string]types.UID{}
	for i := range claims.Items {
		if claims.Items[i].DeletionTimestamp == nil {
			found[claims.Items[i].Name] = claims.Items[i].UID
		}
	}
	return found
}

// expectReplaced expects that each disk is on a new claim of its snapshot, which is the VM's as the one before was, and that nothing else is there.
func expectReplaced(ctx context.Context, restore *snapshotv1.VirtualMachineRestore, before restoring) {
	GinkgoHelper()
	ns := restore.Namespace
	Expect(restore.Status.Restores).To(HaveLen(len(before.claims)))
	Eventually(func(g Gomega) {
		vm := &virtv1.VirtualMachine{}
		g.Expect(suite.World.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: restore.Spec.Target.Name}, vm)).To(Succeed())
		g.Expect(vm.Annotations).To(HaveKeyWithValue(virtualmachinerestore.AnnotationLast, markOf(restore)))
		g.Expect(vm.Status.RestoreInProgress).To(BeNil())
		known := map[types.UID]bool{}
		for _, one := range restore.Status.Restores {
			key := client.ObjectKey{Namespace: ns, Name: one.PersistentVolumeClaimName}
			claim, dv := &corev1.PersistentVolumeClaim{}, &cdiv1.DataVolume{}
			g.Expect(suite.World.Client.Get(ctx, key, claim)).To(Succeed())
			g.Expect(suite.World.Client.Get(ctx, key, dv)).To(Succeed())
			g.Expect(before.claims).To(HaveKey(claim.Name))
			g.Expect(claim.UID).NotTo(Equal(before.claims[claim.Name]), "claim %s", claim.Name)
			g.Expect(claim.Spec.DataSource).To(HaveValue(HaveField("Name", one.VolumeSnapshotName)))
			g.Expect(dv.Status.Phase).To(Equal(cdiv1.Succeeded), "DataVolume %s", dv.Name)
			g.Expect(metav1.IsControlledBy(claim, dv)).To(BeTrue(), "the owners of claim %s are %v", claim.Name, claim.OwnerReferences)
			g.Expect(metav1.IsControlledBy(dv, vm)).To(BeTrue(), "the owners of DataVolume %s are %v", dv.Name, dv.OwnerReferences)
			known[claim.UID] = true
		}
		var claims corev1.PersistentVolumeClaimList
		g.Expect(suite.World.Client.List(ctx, &claims, client.InNamespace(ns))).To(Succeed())
		g.Expect(claims.Items).To(HaveLen(len(known)))
		var dvs cdiv1.DataVolumeList
		g.Expect(suite.World.Client.List(ctx, &dvs, client.InNamespace(ns))).To(Succeed())
		g.Expect(dvs.Items).To(HaveLen(len(known)))
		g.Expect(podsIn(ctx, ns)).To(BeEmpty())
		var volumes corev1.PersistentVolumeList
		g.Expect(suite.World.Client.List(ctx, &volumes)).To(Succeed())
		for i := range volumes.Items {
			if of := volumes.Items[i].Spec.ClaimRef; of != nil && of.Namespace == ns {
				g.Expect(known).To(HaveKey(of.UID), "volume %s of the former claim %s is still there", volumes.Items[i].Name, of.Name)
			}
		}
	}).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).Should(Succeed())
}

// spoil writes over the beginning of a disk that nobody uses.
func spoil(path string) {
	GinkgoHelper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	_, err = file.WriteAt(bytes.Repeat([]byte("after"), 1<<10), 0)
	Expect(err).NotTo(HaveOccurred())
	Expect(file.Sync()).To(Succeed())
}

// beginning are the first bytes of a disk.
func beginning(path string, size int) []byte {
	GinkgoHelper()
	file, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	has := make([]byte, size)
	_, err = io.ReadFull(file, has)
	Expect(err).NotTo(HaveOccurred())
	return has
}
