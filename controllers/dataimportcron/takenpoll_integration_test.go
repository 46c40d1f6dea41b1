//go:build integration

package dataimportcron

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/fixture/lagging"
)

// byNode makes a DataImportCron whose image nodes pull.
func (l *life) byNode(name string) *cdiv1.DataImportCron {
	l.Helper()
	l.name = name
	cron := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}}
	cron.Spec.Schedule, cron.Spec.ManagedDataSource = "@daily", name
	cron.Spec.Template.Spec.PVC = &l.claimOf("").Spec
	cron.Spec.Template.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
		URL: new("docker://registry.example.com/disks/debian:12"), PullMethod: new(cdiv1.RegistryPullNode),
	}}
	l.must(l.direct.Create(l.Context(), cron))
	return cron
}

// polls makes passes of a controller that polls, reads and writes by c.
func (l *life) polls(c client.Client, times int) {
	l.Helper()
	r := l.controller(c)
	r.limit, r.image = flowcontrol.NewFakeAlwaysRateLimiter(), "registry.local/slipway:test"
	for range times {
		_, err := r.Reconcile(l.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: l.namespace, Name: l.name}})
		l.must(err)
	}
}

// said is what the DataImportCron says of its image.
func (l *life) said() string {
	l.Helper()
	cron := &cdiv1.DataImportCron{}
	l.found(cron)
	if c := condition(cron.Status.Conditions, cdiv1.DataImportCronUpToDate); c != nil {
		return c.Message
	}
	return ""
}

// pollOf is the pod that asks for the image of the DataImportCron, or what has its name.
func (l *life) pollOf() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = l.namespace, pollName(l.name)
	return pod
}

// TestAPodOfThePollsNameIsToldOf has one that is somebody else's, which a cache of Slipway's pods never has, and one that it
// does not have yet.
func TestAPodOfThePollsNameIsToldOf(t *testing.T) {
	l := newLife(t)
	l.byNode("theirs")
	theirs := l.pollOf()
	theirs.Spec.Containers = []corev1.Container{{Name: "a", Image: "registry.example.com/a:1"}}
	l.must(l.direct.Create(t.Context(), theirs))
	cache := &lagging.Client{Client: l.direct, Unseen: []client.Object{theirs}}
	l.polls(cache, 2)
	if said := l.said(); !strings.Contains(said, "pod poll-theirs exists and is not of this DataImportCron; delete it") {
		t.Errorf("it says %q", said)
	}
	if l.goes(theirs) {
		t.Error("the pod of somebody else goes")
	}

	l.byNode("ours")
	l.polls(l.direct, 1)
	ours := l.pollOf()
	if l.goes(ours) {
		t.Fatal("there is no pod")
	}
	cache.Unseen = []client.Object{ours}
	l.polls(cache, 2)
	if said := l.said(); !strings.Contains(said, "a node pulls the image, for Pod poll-ours") || l.goes(ours) {
		t.Errorf("with a cache that lags behind it says %q", said)
	}
}

// TestAPollOfADataImportCronBeforeMakesWay makes a DataImportCron anew while its poll's pod is there, as its owner's or nobody's.
func TestAPollOfADataImportCronBeforeMakesWay(t *testing.T) {
	l := newLife(t)
	for name, orphan := range map[string]bool{"owned": false, "orphan": true} {
		former := l.byNode(name)
		l.polls(l.direct, 1)
		pod := l.pollOf()
		if l.goes(pod) {
			t.Fatal("there is no pod")
		}
		if orphan {
			pod.OwnerReferences = nil
			l.must(l.direct.Update(t.Context(), pod))
		}
		l.must(l.direct.Delete(t.Context(), former))
		next := l.byNode(name)
		l.polls(l.direct, 1)
		if said := l.said(); !strings.Contains(said, "a node pulls the image") {
			t.Errorf("%s: it says %q", name, said)
		}
		l.polls(l.direct, 1)
		if again := l.pollOf(); l.goes(again) || !metav1.IsControlledBy(again, next) {
			t.Errorf("%s: the pod is %+v", name, again.ObjectMeta)
		}
	}
}
