package replicaset

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newSet is a replica set of three, which selects by app=web.
func newSet(change ...func(*virtv1.VirtualMachineInstanceReplicaSet)) *virtv1.VirtualMachineInstanceReplicaSet {
	set := &virtv1.VirtualMachineInstanceReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: "the-set"},
		Spec: virtv1.VirtualMachineInstanceReplicaSetSpec{
			Replicas: new(int32(3)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: &virtv1.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}},
		},
	}
	for _, c := range change {
		c(set)
	}
	return set
}

func replicas(n int32) func(*virtv1.VirtualMachineInstanceReplicaSet) {
	return func(set *virtv1.VirtualMachineInstanceReplicaSet) { set.Spec.Replicas = &n }
}

func paused(set *virtv1.VirtualMachineInstanceReplicaSet) { set.Spec.Paused = true }

func deleted(set *virtv1.VirtualMachineInstanceReplicaSet) {
	set.DeletionTimestamp = &metav1.Time{Time: noon}
}

// anInstance is one of the set that runs, as old as words say: "a ready 5m".
func anInstance(words string) virtv1.VirtualMachineInstance {
	parts := strings.Fields(words)
	made := virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Name: parts[0], UID: types.UID(parts[0]), Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{ownedBy(newSet())}, CreationTimestamp: metav1.NewTime(noon),
	}}
	made.Status.Phase = virtv1.Running
	for _, word := range parts[1:] {
		switch word {
		case "ready":
			made.Status.Conditions = []virtv1.VirtualMachineInstanceCondition{{Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
		case "failed":
			made.Status.Phase = virtv1.Failed
		case "succeeded":
			made.Status.Phase = virtv1.Succeeded
		case "deleted":
			made.DeletionTimestamp = &metav1.Time{Time: noon}
		case "relabelled":
			made.Labels = map[string]string{"app": "shop"}
		case "nobody's":
			made.OwnerReferences = nil
		case "another's":
			made.OwnerReferences[0].UID = "another"
		default:
			age, _ := time.ParseDuration(word)
			made.CreationTimestamp = metav1.NewTime(noon.Add(-age))
		}
	}
	return made
}

func TestWhatIsToBeDone(t *testing.T) {
	for name, c := range map[string]struct {
		set       *virtv1.VirtualMachineInstanceReplicaSet
		instances []string
		want      string
	}{
		"none yet":                            {newSet(), nil, "create 3"},
		"as many as are wanted":               {newSet(), []string{"a", "b", "c"}, ""},
		"one when nobody says how many":       {newSet(func(s *virtv1.VirtualMachineInstanceReplicaSet) { s.Spec.Replicas = nil }), nil, "create 1"},
		"less than none is none":              {newSet(replicas(-2)), []string{"a"}, "remove a"},
		"one that is going does not count":    {newSet(), []string{"a", "b", "c deleted"}, "create 1"},
		"one that ended is replaced":          {newSet(), []string{"a", "b failed", "c succeeded"}, "create 2, finished b c"},
		"one that ended and is going":         {newSet(), []string{"a", "b", "c failed deleted"}, "create 1"},
		"one too much that ended":             {newSet(replicas(1)), []string{"a", "b failed"}, "finished b"},
		"the one not ready goes":              {newSet(replicas(2)), []string{"a ready 1m", "b 1h", "c ready 5m"}, "remove b"},
		"of those alike the youngest":         {newSet(replicas(1)), []string{"a ready 1m", "b ready 1h", "c ready 5m"}, "remove a c"},
		"of those not ready the youngest":     {newSet(replicas(2)), []string{"a 1h", "b 5m", "c ready 1s"}, "remove b"},
		"of those of an age one, always":      {newSet(replicas(1)), []string{"b", "a"}, "remove a"},
		"all":                                 {newSet(replicas(0)), []string{"a ready", "b"}, "remove b a"},
		"one of nobody is taken on":           {newSet(), []string{"a", "b nobody's"}, "create 1, adopt b"},
		"one of nobody that ended":            {newSet(), []string{"a nobody's failed", "b", "c", "d"}, "adopt a, finished a"},
		"one of nobody that is going":         {newSet(replicas(0)), []string{"a nobody's deleted"}, ""},
		"one of nobody with other labels":     {newSet(replicas(0)), []string{"a nobody's relabelled"}, ""},
		"one of another's":                    {newSet(replicas(0)), []string{"a another's"}, ""},
		"one that was relabelled is let go":   {newSet(), []string{"a", "b", "c relabelled"}, "create 1, release c"},
		"paused, too few":                     {newSet(paused), []string{"a"}, ""},
		"paused, too many":                    {newSet(paused, replicas(0)), []string{"a"}, ""},
		"paused, one that ended":              {newSet(paused), []string{"a failed"}, ""},
		"paused, whose they are":              {newSet(paused), []string{"a nobody's", "b relabelled"}, "adopt a, release b"},
		"being deleted":                       {newSet(deleted), []string{"a", "b failed", "c nobody's", "d relabelled"}, ""},
		"being deleted, it counts its own":    {newSet(deleted, replicas(1)), []string{"a", "b"}, ""},
		"being deleted and paused and orphan": {newSet(deleted, paused), []string{"a nobody's"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var instances []virtv1.VirtualMachineInstance
			for _, words := range c.instances {
				instances = append(instances, anInstance(words))
			}
			selector, err := selectorOf(c.set)
			if err != nil {
				t.Fatal(err)
			}
			p := planFor(c.set, selector, instances)
			if got := tell(p); got != c.want || p.empty() != (c.want == "") {
				t.Errorf("got %q, empty %v; want %q", got, p.empty(), c.want)
			}
		})
	}
}

// tell says a plan in words.
func tell(p plan) string {
	var all []string
	if p.create > 0 {
		all = append(all, "create "+string(rune('0'+p.create)))
	}
	for _, part := range []struct {
		word      string
		instances []*virtv1.VirtualMachineInstance
	}{{"adopt", p.adopt}, {"release", p.release}, {"remove", p.remove}, {"finished", p.finished}} {
		if len(part.instances) == 0 {
			continue
		}
		text := part.word
		for _, instance := range part.instances {
			text += " " + instance.Name
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func TestAnInstanceIsMadeFromTheTemplate(t *testing.T) {
	for name, c := range map[string]struct {
		template metav1.ObjectMeta
		want     string
	}{
		"named after the set":               {metav1.ObjectMeta{}, "web"},
		"named by the template":             {metav1.ObjectMeta{Name: "front", GenerateName: "front-"}, "front"},
		"with what names are to begin with": {metav1.ObjectMeta{GenerateName: "front-"}, "front-"},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet()
			set.Spec.Template.ObjectMeta = c.template
			set.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web", "tier": "front"}
			set.Spec.Template.ObjectMeta.Annotations = map[string]string{"a": "b"}
			set.Spec.Template.Spec.Hostname = "h"
			made, err := instance(set, labels.SelectorFromSet(labels.Set{"app": "web"}))
			if err != nil {
				t.Fatal(err)
			}
			if made.GenerateName != c.want || made.Name != "" || made.Namespace != "prod" || made.Spec.Hostname != "h" {
				t.Errorf("made %+v", made)
			}
			if !metav1.IsControlledBy(made, set) || made.Labels["tier"] != "front" || made.Annotations["a"] != "b" ||
				!slices.Equal(made.Finalizers, []string{virtv1.VirtualMachineInstanceFinalizer}) {
				t.Errorf("its metadata is %+v", made.ObjectMeta)
			}
			made.Labels["app"] = "other"
			if set.Spec.Template.ObjectMeta.Labels["app"] != "web" {
				t.Error("the instance shares its labels with the template")
			}
		})
	}
}

func TestAnInstanceThatWouldNotCountIsNotMade(t *testing.T) {
	set := newSet()
	selector := labels.SelectorFromSet(labels.Set{"app": "shop"})
	if _, err := instance(set, selector); err == nil || !strings.Contains(err.Error(), `selector does not match labels: the template's are "app=web", the selector is "app=shop"`) {
		t.Errorf("got %v", err)
	}
	set.Spec.Template = nil
	if _, err := instance(set, selector); err == nil {
		t.Error("an instance was made of no template")
	}
}
