//go:build integration

package hyperconverged

import (
	"maps"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/catalog"
	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
)

// TestSizes walks through the life of the common instance types and preferences.
func TestSizes(t *testing.T) {
	c, config, options := startAPIServer(t)
	options.Sizes = catalog.Types()
	stop := startRun(t, c, config, options)
	mine := instancetypeNamed("u1.small")
	if err := c.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), theObject(options)); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []struct {
		name string
		test func(*testing.T, client.WithWatch, Options)
	}{
		{"all are installed, but for one whose name is taken", sizesAreInstalled},
		{"once the name is free the shipped one has it", sizesTakeFreeNames},
		{"what users change in them is put back, and what they take over is theirs", sizesAreKept},
		{"when they are switched off they go, and users' own stay", sizesAreSwitchedOff},
		{"when they are switched on again they are back", sizesAreSwitchedOn},
	} {
		if !t.Run(stage.name, func(t *testing.T) { stage.test(t, c, options) }) {
			t.Fatal("the stages build on each other")
		}
	}
	stop()
	t.Run("a restart writes none of them", func(t *testing.T) { sizesSurviveRestart(t, c, config, options) })
	t.Run("an upgrade changes in place and prunes", func(t *testing.T) { sizesAreUpgraded(t, c, config, options) })
}

// instancetypeNamed is somebody's instance type, of a size that none of the shipped ones has.
func instancetypeNamed(name string) *v1beta1.VirtualMachineClusterInstancetype {
	return &v1beta1.VirtualMachineClusterInstancetype{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.VirtualMachineInstancetypeSpec{
			CPU: v1beta1.CPUInstancetype{Guest: 3}, Memory: v1beta1.MemoryInstancetype{Guest: resource.MustParse("3Gi")},
		},
	}
}

// sizesInstalled counts what bears the operator's label.
func sizesInstalled(t *testing.T, c client.Client) (instancetypes, preferences int) {
	t.Helper()
	its, ps := &v1beta1.VirtualMachineClusterInstancetypeList{}, &v1beta1.VirtualMachineClusterPreferenceList{}
	for _, list := range []client.ObjectList{its, ps} {
		if err := c.List(t.Context(), list, client.MatchingLabels{LabelComponent: componentSizes}); err != nil {
			t.Fatal(err)
		}
	}
	return len(its.Items), len(ps.Items)
}

func sizesBecome(t *testing.T, c client.Client, instancetypes, preferences int) {
	t.Helper()
	eventually(t, "there are as many instance types and preferences as there are to be", func() bool {
		its, ps := sizesInstalled(t, c)
		return its == instancetypes && ps == preferences
	})
}

func read(t *testing.T, c client.Client, name string) *v1beta1.VirtualMachineClusterInstancetype {
	t.Helper()
	it := &v1beta1.VirtualMachineClusterInstancetype{}
	get(t, c, client.ObjectKey{Name: name}, it)
	return it
}

func sizesAreInstalled(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	sizesBecome(t, c, 64, 54)
	if mine := read(t, c, "u1.small"); mine.Spec.CPU.Guest != 3 || len(mine.Labels) > 0 {
		t.Errorf("somebody's u1.small was touched: %+v", mine)
	}
	hco := waitHCO(t, c, options, conditionTaken, metav1.ConditionTrue, "VirtualMachineClusterInstancetype u1.small")
	if meta.IsStatusConditionTrue(hco.Status.Conditions, "Degraded") {
		t.Errorf("a taken name is a failure: %+v", hco.Status.Conditions)
	}
	nano := read(t, c, "u1.nano")
	if nano.Spec.CPU.Guest != 1 || nano.Spec.Memory.Guest.String() != "512Mi" || nano.Labels["instancetype.kubevirt.io/class"] != "general.purpose" {
		t.Errorf("u1.nano is %+v", nano)
	}
	windows := &v1beta1.VirtualMachineClusterPreference{}
	get(t, c, client.ObjectKey{Name: "windows.11.virtio"}, windows)
	if windows.Spec.Devices.PreferredTPM == nil || windows.Spec.Requirements.Memory.Guest.String() != "4Gi" {
		t.Errorf("windows.11.virtio is %+v", windows.Spec)
	}
	kubevirt := &virtv1.KubeVirt{}
	get(t, c, client.ObjectKey{Namespace: options.Namespace, Name: names.KubeVirtName}, kubevirt)
	if said := kubevirt.Spec.Configuration.CommonInstancetypesDeployment; said == nil || said.Enabled == nil || !*said.Enabled {
		t.Errorf("KubeVirt says %+v", said)
	}
}

func sizesTakeFreeNames(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	if err := c.Delete(t.Context(), instancetypeNamed("u1.small")); err != nil {
		t.Fatal(err)
	}
	sizesBecome(t, c, 65, 54)
	eventually(t, "the status no longer tells of it", func() bool {
		hco := &hcov1.HyperConverged{}
		get(t, c, client.ObjectKeyFromObject(theObject(options)), hco)
		return meta.FindStatusCondition(hco.Status.Conditions, conditionTaken) == nil
	})
}

func sizesAreKept(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	edited := read(t, c, "u1.large")
	uid := edited.UID
	edited.Spec.CPU.Guest = 7
	edited.Spec.NodeSelector = map[string]string{"added": "yes"}
	edited.Labels["instancetype.kubevirt.io/class"] = "mine"
	delete(edited.Labels, LabelComponent)
	if err := c.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	eventually(t, "u1.large is as it is shipped", func() bool {
		now := read(t, c, "u1.large")
		return now.UID == uid && now.Spec.CPU.Guest == 2 && now.Spec.NodeSelector == nil &&
			now.Labels["instancetype.kubevirt.io/class"] == "general.purpose" && now.Labels[LabelComponent] == componentSizes
	})
	if err := c.Delete(t.Context(), read(t, c, "u1.xlarge")); err != nil {
		t.Fatal(err)
	}
	sizesBecome(t, c, 65, 54)
	taken := read(t, c, "o1.nano")
	taken.Labels, taken.Spec.Memory.OvercommitPercent = nil, 10
	if err := c.Update(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	waitHCO(t, c, options, conditionTaken, metav1.ConditionTrue, "o1.nano")
	if now := read(t, c, "o1.nano"); now.Spec.Memory.OvercommitPercent != 10 {
		t.Errorf("what was taken over was put back: %+v", now.Spec)
	}
}

func sizesAreSwitchedOff(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	own, copied := instancetypeNamed("team.small"), instancetypeNamed("team.copy")
	copied.Labels = read(t, c, "u1.medium").Labels
	for _, it := range []client.Object{own, copied} {
		if err := c.Create(t.Context(), it); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, c, options, func(hco *hcov1.HyperConverged) {
		hco.Spec.WorkloadSources.CommonInstancetypesDeployment = &virtv1.CommonInstancetypesDeployment{Enabled: new(false)}
	})
	sizesBecome(t, c, 1, 0) // the copy bears the label
	for _, name := range []string{"team.small", "team.copy", "o1.nano"} {
		read(t, c, name)
	}
	wait(t, c, &virtv1.KubeVirtList{}, client.ObjectKey{Namespace: options.Namespace, Name: names.KubeVirtName}, "KubeVirt says so", func(k *virtv1.KubeVirt) bool {
		said := k.Spec.Configuration.CommonInstancetypesDeployment
		return said != nil && said.Enabled != nil && !*said.Enabled
	})
}

func sizesAreSwitchedOn(t *testing.T, c client.WithWatch, options Options) {
	t.Helper()
	for _, name := range []string{"team.copy", "o1.nano"} {
		if err := c.Delete(t.Context(), instancetypeNamed(name)); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, c, options, func(hco *hcov1.HyperConverged) { hco.Spec.WorkloadSources.CommonInstancetypesDeployment = nil })
	sizesBecome(t, c, 65, 54)
}

// sizesSurviveRestart starts the same operator once more, and waits until a pass of it is done.
func sizesSurviveRestart(t *testing.T, c client.WithWatch, config *rest.Config, options Options) {
	t.Helper()
	versions := func() map[string]string {
		list := &v1beta1.VirtualMachineClusterInstancetypeList{}
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, it := range list.Items {
			all[it.Name] = it.ResourceVersion
		}
		return all
	}
	before := versions()
	stop := startRun(t, c, config, options)
	defer stop()
	verbosity := int32(5)
	ask(t, c, options, func(hco *hcov1.HyperConverged) { hco.Spec.Deployment.LogVerbosityConfig.Kubevirt.VirtAPI = &verbosity })
	eventually(t, "the pass is done", func() bool {
		hco := &hcov1.HyperConverged{}
		get(t, c, client.ObjectKeyFromObject(theObject(options)), hco)
		return hco.Status.ObservedGeneration == hco.Generation
	})
	if after := versions(); !maps.Equal(before, after) {
		t.Errorf("instance types were written: %v became %v", before, after)
	}
}

// sizesAreUpgraded starts the operator of a version that ships one instance type, and that of another size.
func sizesAreUpgraded(t *testing.T, c client.WithWatch, config *rest.Config, options Options) {
	t.Helper()
	before := read(t, c, "u1.nano")
	options.Version = "v2"
	options.Sizes = fstest.MapFS{"instancetypes/u1.yaml": {Data: []byte(`apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineClusterInstancetype
metadata: {name: u1.nano}
spec: {cpu: {guest: 1}, memory: {guest: 640Mi}}
`)}}
	stop := startRun(t, c, config, options)
	defer stop()
	sizesBecome(t, c, 1, 0)
	var after *v1beta1.VirtualMachineClusterInstancetype
	eventually(t, "u1.nano is of the later version", func() bool {
		after = read(t, c, "u1.nano")
		return after.Labels[names.LabelVersion] == "v2"
	})
	if after.UID != before.UID || after.Spec.Memory.Guest.String() != "640Mi" || after.Labels[names.LabelVersion] != "v2" {
		t.Errorf("u1.nano is %+v", after)
	}
	if after.Labels["instancetype.kubevirt.io/class"] != "" {
		t.Errorf("a label that is no longer shipped is left: %v", after.Labels)
	}
	read(t, c, "team.small")
}
