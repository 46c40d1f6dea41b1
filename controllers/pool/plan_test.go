package pool

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"

	"github.com/slipway-vm/slipway/controllers/virtualmachine"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newPool is a pool of three, which selects by app=web and whose VMs have a disk of their own.
func newPool(change ...func(*poolv1.VirtualMachinePoolSpec)) *poolv1.VirtualMachinePool {
	pool := &poolv1.VirtualMachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: "the-pool", Generation: 7},
		Spec: poolv1.VirtualMachinePoolSpec{
			Replicas:               new(int32(3)),
			Selector:               &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			VirtualMachineTemplate: template("root"),
		},
	}
	for _, c := range change {
		c(&pool.Spec)
	}
	return pool
}

// template makes VMs with a disk that is filled under the name.
func template(disk string) *poolv1.VirtualMachineTemplateSpec {
	made := &poolv1.VirtualMachineTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"}},
		Spec:       fixture.VM("prod", "web").Spec,
	}
	made.Spec.DataVolumeTemplates = []virtv1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: disk}}}
	made.Spec.Template.Spec.Volumes = []virtv1.Volume{{Name: "root", VolumeSource: virtv1.VolumeSource{DataVolume: &virtv1.DataVolumeSource{Name: disk}}}}
	return made
}

func replicas(n int32) func(*poolv1.VirtualMachinePoolSpec) {
	return func(spec *poolv1.VirtualMachinePoolSpec) { spec.Replicas = &n }
}

func paused(spec *poolv1.VirtualMachinePoolSpec) { spec.Paused = true }

func atMost(given intstr.IntOrString) func(*poolv1.VirtualMachinePoolSpec) {
	return func(spec *poolv1.VirtualMachinePoolSpec) { spec.MaxUnavailable = &given }
}

// going chooses who goes first.
func going(policy poolv1.VirtualMachinePoolSortPolicy) func(*poolv1.VirtualMachinePoolSpec) {
	return func(spec *poolv1.VirtualMachinePoolSpec) {
		spec.ScaleInStrategy = &poolv1.VirtualMachinePoolScaleInStrategy{Proactive: &poolv1.VirtualMachinePoolProactiveScaleInStrategy{
			SelectionPolicy: &poolv1.VirtualMachinePoolSelectionPolicy{SortPolicy: &policy},
		}}
	}
}

func leaving(spec *poolv1.VirtualMachinePoolSpec) {
	spec.ScaleInStrategy = &poolv1.VirtualMachinePoolScaleInStrategy{Opportunistic: &poolv1.VirtualMachinePoolOpportunisticScaleInStrategy{}}
}

// updating chooses who is updated first: the one with the lowest ordinal.
func updating(spec *poolv1.VirtualMachinePoolSpec) {
	spec.UpdateStrategy = &poolv1.VirtualMachinePoolUpdateStrategy{Proactive: &poolv1.VirtualMachinePoolProactiveUpdateStrategy{
		SelectionPolicy: &poolv1.VirtualMachinePoolSelectionPolicy{SortPolicy: new(poolv1.VirtualMachinePoolSortPolicyAscendingOrder)},
	}}
}

func opportunistic(spec *poolv1.VirtualMachinePoolSpec) {
	spec.UpdateStrategy = &poolv1.VirtualMachinePoolUpdateStrategy{Opportunistic: &poolv1.VirtualMachineOpportunisticUpdateStrategy{}}
}

func unmanaged(spec *poolv1.VirtualMachinePoolSpec) {
	spec.UpdateStrategy = &poolv1.VirtualMachinePoolUpdateStrategy{Unmanaged: &poolv1.VirtualMachinePoolUnmanagedStrategy{}}
}

// aMachine is a VM of the pool and its instance, as words say: "web-0 ready 5m".
func aMachine(t *testing.T, pool *poolv1.VirtualMachinePool, words string) (virtv1.VirtualMachine, *virtv1.VirtualMachineInstance) {
	t.Helper()
	digest, err := digestOf(pool)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Fields(words)
	ordinal, ok := ordinalOf(pool, parts[0])
	if !ok {
		t.Fatalf("%s is no name of the pool", parts[0])
	}
	vm := machine(pool, ordinal, "web-7", digest)
	vm.UID, vm.CreationTimestamp = types.UID(parts[0]), metav1.NewTime(noon)
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Name: vm.Name, Labels: maps.Clone(vm.Spec.Template.ObjectMeta.Labels), Annotations: map[string]string{},
	}}
	vmi.Status.Phase = virtv1.Running
	for _, word := range parts[1:] {
		switch word {
		case "ready":
			vm.Status.Ready = true
			vmi.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
		case "outdated":
			vm.Annotations[annotationTemplate] = "another"
		case "disks":
			vm.Spec.DataVolumeTemplates[0].Annotations = map[string]string{"of": "another template"}
		case "behind":
			vmi.Labels[virtv1.VirtualMachinePoolRevisionName] = "web-6"
		case "edited": // by its user, in a way that its guest cannot take up
			vmi.Annotations[virtualmachine.AnnotationTemplate] = "another"
			vm.Status.Conditions = []virtv1.VirtualMachineCondition{{Type: virtv1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue}}
		case "growing": // by its user, which its guest may take up
			vmi.Annotations[virtualmachine.AnnotationTemplate] = "another"
		case "asked":
			vm.Status.StateChangeRequests = []virtv1.VirtualMachineStateChangeRequest{{Action: virtv1.StartRequest}}
		case "halted":
			vm.Spec.RunStrategy, vmi = new(virtv1.RunStrategyHalted), nil
		case "deleted":
			vm.DeletionTimestamp = &metav1.Time{Time: noon}
		case "relabelled":
			vm.Labels = map[string]string{"app": "shop"}
		case "another's":
			vm.OwnerReferences[0].UID = "another"
		default:
			age, err := time.ParseDuration(word)
			if err != nil {
				t.Fatal(err)
			}
			vm.CreationTimestamp = metav1.NewTime(noon.Add(-age))
		}
	}
	return *vm, vmi
}

// plans plans for the machines.
func plans(t *testing.T, pool *poolv1.VirtualMachinePool, machines ...string) plan {
	t.Helper()
	var vms []virtv1.VirtualMachine
	var vmis []virtv1.VirtualMachineInstance
	for _, words := range machines {
		vm, vmi := aMachine(t, pool, words)
		vms = append(vms, vm)
		if vmi != nil {
			vmis = append(vmis, *vmi)
		}
	}
	selector, err := selectorOf(pool)
	if err != nil {
		t.Fatal(err)
	}
	p, err := planFor(pool, selector, vms, vmis)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tell says a plan in words.
func tell(p plan) string {
	var all []string
	if p.create > 0 {
		all = append(all, "create "+string(rune('0'+p.create)))
	}
	for _, part := range []struct {
		word     string
		machines []*virtv1.VirtualMachine
	}{{"release", p.release}, {"remove", p.remove}, {"update", p.update}, {"replace", p.replace}, {"restart", p.restart}} {
		if len(part.machines) == 0 {
			continue
		}
		text := part.word
		for _, vm := range part.machines {
			text += " " + strings.TrimPrefix(vm.Name, "web-")
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func TestHowTheNumberIsReached(t *testing.T) {
	for name, c := range map[string]struct {
		pool     *poolv1.VirtualMachinePool
		machines []string
		want     string
	}{
		"none yet":                          {newPool(), nil, "create 3"},
		"as many as are wanted":             {newPool(), []string{"web-0", "web-1", "web-2"}, ""},
		"one when nobody says how many":     {newPool(func(s *poolv1.VirtualMachinePoolSpec) { s.Replicas = nil }), nil, "create 1"},
		"less than none is none":            {newPool(replicas(-2)), []string{"web-0"}, "remove 0"},
		"one that is going keeps its place": {newPool(), []string{"web-0", "web-1 deleted", "web-2"}, ""},
		"one that is going is no surplus":   {newPool(replicas(1)), []string{"web-0", "web-1 deleted"}, ""},
		"one of another's":                  {newPool(replicas(0)), []string{"web-0 another's"}, ""},
		"one that was relabelled is let go": {newPool(), []string{"web-0", "web-1", "web-2 relabelled"}, "create 1, release 2"},
		"the highest first":                 {newPool(replicas(2), going("DescendingOrder")), []string{"web-2", "web-10", "web-9", "web-0"}, "remove 10 9"},
		"the lowest first":                  {newPool(replicas(2), going("AscendingOrder")), []string{"web-2", "web-10", "web-0"}, "remove 0"},
		"the oldest first":                  {newPool(replicas(1), going("Oldest")), []string{"web-0 1m", "web-1 1h", "web-2 5m"}, "remove 1 2"},
		"the youngest first":                {newPool(replicas(1), going("Newest")), []string{"web-0 1m", "web-1 1h", "web-2 5m"}, "remove 0 2"},
		"the user's to delete":              {newPool(replicas(0), leaving), []string{"web-0"}, ""},
		"the user's to delete, and too few": {newPool(leaving), []string{"web-0"}, "create 2"},
		"paused, too few":                   {newPool(paused), []string{"web-0"}, ""},
		"paused, too many":                  {newPool(paused, replicas(0)), []string{"web-0 outdated"}, ""},
		"paused, whose they are":            {newPool(paused), []string{"web-0 relabelled"}, "release 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := plans(t, c.pool, c.machines...)
			if got := tell(p); !sameParts(got, c.want) || p.empty() != (c.want == "") {
				t.Errorf("got %q, empty %v; want %q", got, p.empty(), c.want)
			}
		})
	}
	any := plans(t, newPool(replicas(1)), "web-0", "web-1", "web-2")
	if len(any.remove) != 2 || any.remove[0] == any.remove[1] {
		t.Errorf("of any two: %q", tell(any))
	}
}

// sameParts compares plans in words, whatever the order of their parts.
func sameParts(a, b string) bool {
	split := func(text string) []string { return slices.Sorted(slices.Values(strings.Split(text, ", "))) }
	return slices.Equal(split(a), split(b))
}

func TestAPoolThatIsDeletedDoesNothing(t *testing.T) {
	pool := newPool(replicas(9))
	pool.DeletionTimestamp = &metav1.Time{Time: noon}
	if p := plans(t, pool, "web-0 outdated", "web-1 relabelled"); !p.empty() || len(p.members) != 1 {
		t.Errorf("it does %q with %d", tell(p), len(p.members))
	}
}

func TestHowATemplateComesToVMsAndGuests(t *testing.T) {
	one := atMost(intstr.FromInt32(1))
	for name, c := range map[string]struct {
		pool     *poolv1.VirtualMachinePool
		machines []string
		want     string
	}{
		"VMs at once":                     {newPool(updating), []string{"web-0 ready outdated", "web-1 outdated", "web-2"}, "update 0 1"},
		"VMs at once, whoever stops":      {newPool(updating, one), []string{"web-0 ready outdated", "web-1 ready outdated", "web-2"}, "update 0 1"},
		"guests after them":               {newPool(updating), []string{"web-0 ready behind", "web-1 ready behind", "web-2 ready"}, "restart 0 1"},
		"guests that their users changed": {newPool(updating), []string{"web-0 ready edited", "web-1 ready growing", "web-2 ready"}, "restart 0"},
		"one guest after the other":       {newPool(updating, one), []string{"web-0 ready behind", "web-1 ready behind", "web-2 ready"}, "restart 0"},
		"none while another stands":       {newPool(updating, one), []string{"web-0 ready behind", "web-1", "web-2 ready"}, ""},
		"one that stands, at any time":    {newPool(updating, one), []string{"web-0 ready behind", "web-1 behind", "web-2"}, "restart 1"},
		"none that was asked":             {newPool(updating, one), []string{"web-0 ready behind asked", "web-1 ready behind", "web-2 ready"}, ""},
		"a halted one is not missed":      {newPool(updating, one), []string{"web-0 ready behind", "web-1 halted", "web-2 ready"}, "restart 0"},
		"a part of them":                  {newPool(updating, atMost(intstr.FromString("70%"))), []string{"web-0 ready behind", "web-1 ready behind", "web-2 ready behind"}, "restart 0 1"},
		"at least one":                    {newPool(updating, atMost(intstr.FromString("1%"))), []string{"web-0 ready behind", "web-1 ready behind", "web-2 ready"}, "restart 0"},
		"other disks make other VMs":      {newPool(updating, one), []string{"web-0 ready outdated disks", "web-1 ready outdated disks", "web-2 ready"}, "replace 0"},
		"opportunistic, VMs":              {newPool(opportunistic), []string{"web-0 ready outdated", "web-1 ready", "web-2 ready"}, "update 0"},
		"opportunistic, guests":           {newPool(opportunistic), []string{"web-0 ready behind", "web-1 ready", "web-2 ready"}, ""},
		"opportunistic, disks":            {newPool(opportunistic), []string{"web-0 ready outdated disks", "web-1 ready", "web-2 ready"}, "update 0"},
		"unmanaged":                       {newPool(unmanaged), []string{"web-0 ready outdated", "web-1 ready behind", "web-2 ready"}, ""},
		"not while the number changes":    {newPool(updating), []string{"web-0 ready outdated", "web-1 ready behind"}, "create 1"},
		"what the user is to delete too":  {newPool(opportunistic, leaving, replicas(1)), []string{"web-0 ready", "web-1 ready outdated"}, "update 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tell(plans(t, c.pool, c.machines...)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestASelectorKeepsVMsFromBeingChosen(t *testing.T) {
	pool := newPool(replicas(0), going("AscendingOrder"))
	pool.Spec.ScaleInStrategy.Proactive.SelectionPolicy.Selectors = &poolv1.VirtualMachinePoolSelectors{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{virtv1.VirtualMachinePoolRevisionName: "web-6"}},
	}
	if got := tell(plans(t, pool, "web-0", "web-1")); got != "" {
		t.Errorf("of a revision that none has: %q", got)
	}
	pool.Spec.ScaleInStrategy.Proactive.SelectionPolicy.Selectors.LabelSelector.MatchLabels[virtv1.VirtualMachinePoolRevisionName] = "web-7"
	if got := tell(plans(t, pool, "web-0", "web-1")); got != "remove 0 1" {
		t.Errorf("of the revision that all have: %q", got)
	}
}
