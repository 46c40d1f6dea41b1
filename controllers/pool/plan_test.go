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
	vm.UID, vm.CreationTimestamp, vm.Finalizers = types.UID(parts[0]), metav1.NewTime(noon), nil
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
		case "held":
			vm.Finalizers = []string{finalizer}
		case "fast", "slow": // nodes
			vm.Spec.Template.Spec.NodeSelector = map[string]string{"disk": word}
		case "crashed", "crashed2", "crashed3": // so many times, the last time 10 s ago
			vmi = nil
			count := max(int(word[len(word)-1]-'0'), 1)
			if word == "crashed" {
				count = 1
			}
			vm.Status.PrintableStatus = virtv1.VirtualMachineStatusCrashLoopBackOff
			vm.Status.StartFailure = &virtv1.VirtualMachineStartFailure{ConsecutiveFailCount: count, RetryAfterTimestamp: &metav1.Time{Time: noon.Add(time.Minute)}}
		case "unschedulable", "waits", "restarted": // for 4 minutes; its VM is not ready for longer
			vmi.CreationTimestamp = metav1.NewTime(noon.Add(-4 * time.Minute))
			vm.Status.PrintableStatus = virtv1.VirtualMachineStatusUnschedulable
			since := noon.Add(-3 * time.Minute)
			if word == "restarted" {
				since = noon.Add(-time.Hour)
			}
			vm.Status.Conditions = []virtv1.VirtualMachineCondition{{Type: virtv1.VirtualMachineReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(since)}}
			if word == "waits" {
				vm.Status.PrintableStatus = virtv1.VirtualMachineStatusStarting
			}
		case "orphaned":
			vm.OwnerReferences = nil
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
	p, err := planFor(pool, selector, vms, vmis, noon)
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
	var ailing []*virtv1.VirtualMachine
	for _, one := range p.heal {
		ailing = append(ailing, one.vm)
	}
	if p.guard {
		all = append(all, "guard")
	}
	if p.leave {
		all = append(all, "leave")
	}
	for _, part := range []struct {
		word     string
		machines []*virtv1.VirtualMachine
	}{
		{"release", p.release}, {"remove", p.remove}, {"update", p.update}, {"replace", p.replace}, {"restart", p.restart},
		{"heal", ailing}, {"hold", p.hold}, {"keep", p.keep}, {"loosen", p.loosen},
	} {
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

// A policy that names what nodes VMs ask for meets no others.
func TestVMsAreChosenByTheNodesThatTheyAskFor(t *testing.T) {
	require := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	for name, c := range map[string]struct {
		given []corev1.NodeSelectorRequirement
		want  string
	}{
		"one of those":     {[]corev1.NodeSelectorRequirement{require("disk", corev1.NodeSelectorOpIn, "fast", "faster")}, "remove 1"},
		"none of those":    {[]corev1.NodeSelectorRequirement{require("disk", corev1.NodeSelectorOpNotIn, "fast")}, "remove 0 2"},
		"any":              {[]corev1.NodeSelectorRequirement{require("disk", corev1.NodeSelectorOpExists)}, "remove 0 1"},
		"none":             {[]corev1.NodeSelectorRequirement{require("disk", corev1.NodeSelectorOpDoesNotExist)}, "remove 2"},
		"all of them":      {[]corev1.NodeSelectorRequirement{require("disk", corev1.NodeSelectorOpExists), require("disk", corev1.NodeSelectorOpNotIn, "slow")}, "remove 1"},
		"nothing required": {nil, "remove 0 1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(replicas(0), going("AscendingOrder"))
			policy := pool.Spec.ScaleInStrategy.Proactive.SelectionPolicy
			policy.Selectors = &poolv1.VirtualMachinePoolSelectors{NodeSelectorRequirementMatcher: &c.given}
			if got := tell(plans(t, pool, "web-0 slow", "web-1 fast", "web-2")); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			policy.Selectors.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{virtv1.VirtualMachinePoolRevisionName: "web-6"}}
			if got := tell(plans(t, pool, "web-0 slow", "web-1 fast", "web-2")); got != "" {
				t.Errorf("labels do not match, and got %q", got)
			}
		})
	}
	pool := newPool(updating)
	pool.Spec.UpdateStrategy.Proactive.SelectionPolicy.Selectors = &poolv1.VirtualMachinePoolSelectors{
		NodeSelectorRequirementMatcher: &[]corev1.NodeSelectorRequirement{require("disk", corev1.NodeSelectorOpIn, "fast")},
	}
	if got := tell(plans(t, pool, "web-0 slow ready behind", "web-1 fast ready behind", "web-2 ready behind")); got != "restart 1" {
		t.Errorf("an update: got %q", got)
	}
}

// preserving has the disks of VMs that others delete kept.
func preserving(spec *poolv1.VirtualMachinePoolSpec) {
	leaving(spec)
	spec.ScaleInStrategy.Opportunistic.StatePreservation = new(poolv1.StatePreservationOffline)
}

func TestWhichDisksAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		given *poolv1.StatePreservation
		want  bool
	}{
		"nothing is said":          {},
		"none":                     {given: new(poolv1.StatePreservationDisabled)},
		"the disks":                {given: new(poolv1.StatePreservationOffline), want: true},
		"memory, too, from before": {given: new(poolv1.StatePreservationOnline), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			for strategy, pool := range map[string]*poolv1.VirtualMachinePoolScaleInStrategy{
				"proactive":     {Proactive: &poolv1.VirtualMachinePoolProactiveScaleInStrategy{StatePreservation: c.given}},
				"opportunistic": {Opportunistic: &poolv1.VirtualMachinePoolOpportunisticScaleInStrategy{StatePreservation: c.given}},
			} {
				given := newPool(func(spec *poolv1.VirtualMachinePoolSpec) { spec.ScaleInStrategy = pool })
				if got := preserves(given) || holds(given); got != c.want {
					t.Errorf("%s: got %v, want %v", strategy, got, c.want)
				}
			}
		})
	}
}

func TestWhomAPoolHolds(t *testing.T) {
	guarded := func(change ...func(*poolv1.VirtualMachinePoolSpec)) *poolv1.VirtualMachinePool {
		pool := newPool(change...)
		pool.Finalizers = []string{finalizer}
		return pool
	}
	leaves := guarded(preserving)
	leaves.DeletionTimestamp = &metav1.Time{Time: noon}
	for name, c := range map[string]struct {
		pool     *poolv1.VirtualMachinePool
		machines []string
		want     string
	}{
		"nobody":                         {newPool(leaving), []string{"web-0", "web-1 deleted", "web-2"}, ""},
		"the pool itself first":          {newPool(preserving), []string{"web-0 held", "web-1 held", "web-2 held"}, "guard"},
		"those that are not held":        {guarded(preserving), []string{"web-0", "web-1 held", "web-2"}, "hold 0 2"},
		"one that is deleted":            {guarded(preserving), []string{"web-0 held", "web-1 held deleted", "web-2 deleted"}, "keep 1"},
		"one that is deleted, paused":    {guarded(preserving, paused), []string{"web-0 held", "web-1 held deleted"}, "keep 1"},
		"none, by another strategy":      {guarded(updating), []string{"web-0 held", "web-1 held deleted", "web-2"}, "loosen 0 1"},
		"one that is let go":             {guarded(preserving, replicas(1)), []string{"web-0 held", "web-1 held relabelled"}, "release 1"},
		"one that lost its owner":        {guarded(preserving, replicas(1)), []string{"web-0 held", "web-1 held orphaned", "web-2 orphaned"}, "loosen 1"},
		"one of another's":               {guarded(preserving, replicas(1)), []string{"web-0 held", "web-1 held another's"}, ""},
		"none, when the pool is deleted": {leaves, []string{"web-0 held", "web-1 held deleted", "web-2 held relabelled", "web-3 held orphaned"}, "leave, loosen 0 1 2 3"},
	} {
		t.Run(name, func(t *testing.T) {
			p := plans(t, c.pool, c.machines...)
			if got := tell(p); got != c.want || p.empty() != (c.want == "") {
				t.Errorf("got %q, empty %v; want %q", got, p.empty(), c.want)
			}
		})
	}
}

func TestVMsThatDoNotStartAreReplaced(t *testing.T) {
	healing := func(starts uint32, after time.Duration) func(*poolv1.VirtualMachinePoolSpec) {
		return func(spec *poolv1.VirtualMachinePoolSpec) {
			spec.Autohealing = &poolv1.VirtualMachinePoolAutohealingStrategy{StartUpFailureThreshold: &starts, MinFailingToStartDuration: &metav1.Duration{Duration: after}}
		}
	}
	byDefault := func(spec *poolv1.VirtualMachinePoolSpec) {
		spec.Autohealing = &poolv1.VirtualMachinePoolAutohealingStrategy{}
	}
	for name, c := range map[string]struct {
		pool     *poolv1.VirtualMachinePool
		machines []string
		want     string
		again    time.Duration
	}{
		"none where nobody asks":           {newPool(), []string{"web-0 crashed3", "web-1 restarted", "web-2"}, "", 0},
		"those that failed three times":    {newPool(byDefault), []string{"web-0 crashed2", "web-1 crashed3", "web-2"}, "heal 1", 5*time.Minute + 10*time.Second},
		"those that failed so many times":  {newPool(healing(1, time.Hour)), []string{"web-0 crashed", "web-1 ready", "web-2"}, "heal 0", 0},
		"those that crash for so long":     {newPool(healing(9, 80*time.Second)), []string{"web-0 crashed", "web-1 crashed3", "web-2"}, "heal 1", 130 * time.Second},
		"those that fail for so long":      {newPool(healing(9, 3*time.Minute)), []string{"web-0 unschedulable", "web-1 waits", "web-2"}, "heal 0", 0},
		"those that will":                  {newPool(byDefault), []string{"web-0 unschedulable", "web-1 restarted", "web-2"}, "", time.Minute},
		"those that failed before, halted": {newPool(byDefault), []string{"web-0 restarted halted", "web-1 ready", "web-2"}, "", 0},
		"none that is too much anyway":     {newPool(byDefault, replicas(0), going("AscendingOrder")), []string{"web-0 crashed3"}, "remove 0", 0},
		"none that is going":               {newPool(byDefault, replicas(1)), []string{"web-0 crashed3 deleted"}, "", 0},
		"none of a pool that is paused":    {newPool(byDefault, paused), []string{"web-0 crashed3"}, "", 0},
		"before an update":                 {newPool(byDefault, replicas(2)), []string{"web-0 crashed3", "web-1 ready outdated"}, "heal 0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := plans(t, c.pool, c.machines...)
			if got := tell(p); got != c.want || p.again != c.again {
				t.Errorf("got %q, again after %s; want %q and %s", got, p.again, c.want, c.again)
			}
			for _, one := range p.heal {
				if one.why == "" {
					t.Errorf("nobody is told why %s is replaced", one.vm.Name)
				}
			}
		})
	}
}
