package pool

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	virtv1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
)

func TestAMachineIsMadeFromTheTemplate(t *testing.T) {
	pool := newPool()
	made := machine(pool, 4, "web-7", "d1")
	if made.Name != "web-4" || made.Namespace != "prod" || !metav1.IsControlledBy(made, pool) {
		t.Errorf("made %+v", made.ObjectMeta)
	}
	if want := map[string]string{"app": "web", virtv1.VirtualMachinePoolRevisionName: "web-7"}; !reflect.DeepEqual(made.Labels, want) {
		t.Errorf("its labels are %v", made.Labels)
	}
	if made.Annotations["a"] != "b" || made.Annotations[annotationTemplate] != "d1" || made.Spec.Template.ObjectMeta.Labels[virtv1.VirtualMachinePoolRevisionName] != "web-7" {
		t.Errorf("its marks are %v, %v", made.Annotations, made.Spec.Template.ObjectMeta.Labels)
	}
	if made.Spec.DataVolumeTemplates[0].Name != "root-4" || made.Spec.Template.Spec.Volumes[0].DataVolume.Name != "root-4" {
		t.Error("its disk is not its own")
	}
	made.Labels["app"] = "other"
	if pool.Spec.VirtualMachineTemplate.ObjectMeta.Labels["app"] != "web" || pool.Spec.VirtualMachineTemplate.Spec.DataVolumeTemplates[0].Name != "root" {
		t.Error("it shares what it has with the template")
	}
}

// volumes are all that refer to something by a name.
func volumes() []virtv1.Volume {
	ref := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	claim := func(name string) *virtv1.PersistentVolumeClaimVolumeSource {
		source := &virtv1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = name
		return source
	}
	var all []virtv1.Volume
	for _, source := range []virtv1.VolumeSource{
		{PersistentVolumeClaim: claim("root")},
		{PersistentVolumeClaim: claim("shared")},
		{DataVolume: &virtv1.DataVolumeSource{Name: "shared"}},
		{ConfigMap: &virtv1.ConfigMapVolumeSource{LocalObjectReference: *ref("map")}},
		{Secret: &virtv1.SecretVolumeSource{SecretName: "secret"}},
		{CloudInitNoCloud: &virtv1.CloudInitNoCloudSource{UserDataSecretRef: ref("user"), NetworkDataSecretRef: ref("net")}},
		{CloudInitConfigDrive: &virtv1.CloudInitConfigDriveSource{UserDataSecretRef: ref("user")}},
		{Sysprep: &virtv1.SysprepSource{ConfigMap: ref("sysmap")}},
		{Sysprep: &virtv1.SysprepSource{Secret: ref("syssecret")}},
	} {
		all = append(all, virtv1.Volume{VolumeSource: source})
	}
	return all
}

func TestWhichNamesGetTheOrdinal(t *testing.T) {
	for name, c := range map[string]struct {
		generation *poolv1.VirtualMachinePoolNameGeneration
		want       string
	}{
		"disks that the template fills": {nil, "root-2 shared shared map secret user net user sysmap syssecret"},
		"ConfigMaps too": {&poolv1.VirtualMachinePoolNameGeneration{AppendIndexToConfigMapRefs: new(true)},
			"root-2 shared shared map-2 secret user net user sysmap-2 syssecret"},
		"Secrets too": {&poolv1.VirtualMachinePoolNameGeneration{AppendIndexToConfigMapRefs: new(false), AppendIndexToSecretRefs: new(true)},
			"root-2 shared shared map secret-2 user-2 net-2 user-2 sysmap syssecret-2"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(func(spec *poolv1.VirtualMachinePoolSpec) {
				spec.NameGeneration = c.generation
				spec.VirtualMachineTemplate.Spec.Template.Spec.Volumes = volumes()
			})
			var got []string
			for _, v := range indexed(pool, 2).Template.Spec.Volumes {
				switch {
				case v.PersistentVolumeClaim != nil:
					got = append(got, v.PersistentVolumeClaim.ClaimName)
				case v.DataVolume != nil:
					got = append(got, v.DataVolume.Name)
				}
				for _, ref := range append(configMaps(&v.VolumeSource), secrets(&v.VolumeSource)...) {
					got = append(got, *ref)
				}
			}
			// The Secret of a volume comes after the others of it, which here are none.
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}

func TestOrdinals(t *testing.T) {
	pool := newPool()
	for name, want := range map[string]int{"web-0": 0, "web-12": 12, "web-01": -1, "web": -1, "web-": -1, "web--1": -1, "shop-1": -1, "web-a-1": -1, "1": -1} {
		got, ok := ordinalOf(pool, name)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
}

func TestAMachineThatWouldNotCountIsNotMade(t *testing.T) {
	pool := newPool()
	if err := checkTemplate(pool, labels.SelectorFromSet(labels.Set{"app": "shop"})); err == nil || !strings.Contains(err.Error(), "selector does not match labels") {
		t.Errorf("got %v", err)
	}
	pool.Spec.VirtualMachineTemplate = nil
	if err := checkTemplate(pool, labels.Everything()); err == nil {
		t.Error("VMs are made of no template")
	}
}

func TestAnUpdateThatTheGuestDoesNotSeeNeedsNoRestart(t *testing.T) {
	pool := newPool()
	old, _ := aMachine(t, pool, "web-1")
	old.Labels["mine"] = "yes"
	pool.Spec.VirtualMachineTemplate.ObjectMeta.Annotations["a"] = "c"
	s := &scope{pool: pool, revision: "web-8", plan: plan{digest: "new"}}
	changed, ok := s.updated(&old)
	if !ok || changed.Labels[virtv1.VirtualMachinePoolRevisionName] != "web-8" || changed.Labels["mine"] != "yes" || changed.Annotations["a"] != "c" || changed.Annotations[annotationTemplate] != "new" {
		t.Errorf("updated to %+v", changed.ObjectMeta)
	}
	if !reflect.DeepEqual(changed.Spec.Template, old.Spec.Template) {
		t.Error("a restart is due for an annotation of the VM")
	}
	pool.Spec.VirtualMachineTemplate.Spec.Template.Spec.Hostname = "h"
	changed, _ = s.updated(&old)
	if changed.Spec.Template.Spec.Hostname != "h" || changed.Spec.Template.ObjectMeta.Labels[virtv1.VirtualMachinePoolRevisionName] != "web-8" {
		t.Errorf("the new template is not in %+v", changed.Spec.Template)
	}
}

func TestTheStatusCountsThoseThatServe(t *testing.T) {
	pool := newPool(paused)
	s := &scope{now: noon, pool: pool, selector: labels.SelectorFromSet(labels.Set{"app": "web"}), members: plans(t, pool, "web-0 ready", "web-1", "web-2 ready deleted", "web-3 another's").members}
	_ = s.fail(reasonScaleOutFailed, errors.New("exceeded quota"))
	status := statusOf(s)
	if status.Replicas != 3 || status.ReadyReplicas != 2 || status.LabelSelector != "app=web" || len(status.Conditions) != 2 {
		t.Fatalf("got %+v", status)
	}
	for i, want := range []string{"ReplicaPaused SuccessfulPaused", "ReplicaFailure FailedScaleOut"} {
		if got := string(status.Conditions[i].Type) + " " + status.Conditions[i].Reason; got != want {
			t.Errorf("condition %d is %s", i, got)
		}
	}
	pool.Spec.Paused, s.failure = false, nil
	if got := conditions(s); got != nil {
		t.Errorf("after both: %+v", got)
	}
}
