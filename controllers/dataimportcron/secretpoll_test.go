package dataimportcron

import (
	"bytes"
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/slipway-vm/slipway/controllers/cdiconfig"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/internal/transfer"
	"github.com/slipway-vm/slipway/tests/fixture"
)

func TestSecretsThatLetIn(t *testing.T) {
	for name, c := range map[string]struct {
		source *cdiv1.DataVolumeSource
		want   bool
	}{
		"none":                   {&cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{}}, false},
		"a password":             {&cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{SecretRef: "login"}}, true},
		"headers":                {&cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{SecretExtraHeaders: []string{"token"}}}, true},
		"a file with a checksum": {&cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{SecretRef: "login", Checksum: "sha256:00"}}, false},
		"a registry's":           {&cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{SecretRef: new("login")}}, true},
		"an open registry":       {&cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{}}, false},
		"that the kubelet reads": {&cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{SecretRef: new("login"), PullMethod: new(cdiv1.RegistryPullNode)}}, false},
	} {
		if got := namesSecrets(c.source); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestThePodThatAsksWithSecrets(t *testing.T) {
	config := &cdiv1.CDIConfig{}
	config.Name, config.Spec.InsecureRegistries = names.CDIConfigName, []string{"registry.example.com"}
	cdi := &cdiv1.CDI{}
	cdi.Name = names.CDIName
	cdi.Spec.Config = &cdiv1.CDIConfigSpec{ImportProxy: &cdiv1.ImportProxy{HTTPSProxy: new("http://me:word@proxy.example.com:3128")}}
	c := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(config, cdi).Build()
	r := &Reconciler{Client: c, live: c, namespace: "slipway"}
	for name, source := range map[string]*cdiv1.DataVolumeSource{
		"registry": {Registry: &cdiv1.DataVolumeSourceRegistry{URL: new("docker://registry.example.com/disks/debian:12"), SecretRef: new("login"), CertConfigMap: new("authority")}},
		"file":     {HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "https://images.example.com/debian.qcow2", SecretRef: "login", SecretExtraHeaders: []string{"token"}}},
	} {
		cron := &cdiv1.DataImportCron{ObjectMeta: metav1.ObjectMeta{Namespace: "images", Name: "debian", UID: "0000-cron"}}
		cron.Spec.Template.Spec.Source = source
		if name == "registry" {
			cron.Annotations = map[string]string{AnnotationDesired: someDigest}
		}
		pod := pollPod(cron, "registry.local/slipway:test", cdiconfig.Workload{})
		if err := r.withSecrets(context.Background(), cron, pod); err != nil {
			t.Fatal(err)
		}
		got, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(got, []byte("word")) {
			t.Errorf("%s: the proxy's password is in the pod:\n%s", name, got)
		}
		got = bytes.ReplaceAll(got, []byte(pod.Annotations[names.Domain+"import-proxy"]), []byte("poll-debian-RANDOM"))
		fixture.Golden(t, "testdata/poll-"+name+".yaml", got)
	}
}

func TestWhatAPodTellsOfAnImage(t *testing.T) {
	result := func(r transfer.Result) string {
		text, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	ended := func(code int32, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message}}
	}
	noSecret := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "poll-p" not found`}}
	for name, c := range map[string]struct {
		state   corev1.ContainerState
		age     time.Duration
		proxied bool
		want    string // a digest, or words of the failure; empty while there is no answer
	}{
		"nothing yet":            {corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, time.Minute, false, ""},
		"a Secret is missing":    {corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}, 5 * time.Minute, false, "within 5m0s: ContainerCreating"},
		"a digest":               {ended(0, result(transfer.Result{Digest: someDigest})), time.Minute, false, someDigest},
		"a failure":              {ended(1, result(transfer.Result{Reason: transfer.Unauthorized, Message: "the registry lets nobody in"})), time.Minute, false, "Unauthorized: the registry lets nobody in"},
		"no digest":              {ended(0, result(transfer.Result{Digest: "md5:00"})), time.Minute, false, `digest "md5:00"`},
		"no word":                {ended(137, ""), time.Minute, false, "ended with code 137"},
		"a proxy that comes":     {noSecret, 10 * time.Second, true, ""},
		"a proxy never comes":    {noSecret, 2 * time.Minute, true, `secret "poll-p" not found`},
		"a Secret of the user's": {noSecret, 10 * time.Second, false, `secret "poll-p" not found`},
	} {
		now := time.Now()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.NewTime(now.Add(-c.age))}}
		if c.proxied {
			pod.Annotations = map[string]string{names.Domain + "import-proxy": "poll-p"}
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerPoll, State: c.state}}
		got, err := told(pod, now)
		wantAnswer(t, name, c.want, got, err)
	}
}
