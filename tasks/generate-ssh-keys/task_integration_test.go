//go:build integration

package generatesshkeys_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare/rehearsal"
	generatesshkeys "github.com/slipway-vm/slipway/tasks/generate-ssh-keys"
)

type params = map[string]any

// world is a namespace in which the task may run.
type world struct {
	*rehearsal.Stage
	ns string
}

var task = generatesshkeys.Task()

func TestTask(t *testing.T) {
	stage := rehearsal.Open(t, "../../controllers/hyperconverged/components/crds")
	for name, test := range map[string]func(t *testing.T, w *world){
		"it makes a pair that fits":                            makes,
		"it adds to a Secret that exists":                      adds,
		"it never overwrites a private key":                    neverOverwrites,
		"a failure leaves nothing behind":                      leavesNothing,
		"wrong parameters are refused in the field's words":    refuses,
		"a task whose pod is killed makes one pair in the end": survivesKills,
	} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, stage)) })
	}
}

func newWorld(t *testing.T, s *rehearsal.Stage) *world {
	t.Helper()
	return &world{Stage: s, ns: s.Namespace(t, task)}
}

func (w *world) taskRun(p params) rehearsal.Run {
	all := params{"additionalSSHKeygenOptions": "-t ed25519"}
	maps.Copy(all, p)
	return rehearsal.Run{Task: task, Namespace: w.ns, Name: "run", UID: "uid-of-run", Params: all}
}

func ended(t *testing.T, o rehearsal.Outcome, code int, said string) {
	t.Helper()
	if o.Code != code || said != "" && (o.Err == nil || !strings.Contains(o.Err.Error(), said)) {
		t.Fatalf("the task ended with %d, want %d and %q: %v\n%s", o.Code, code, said, o.Err, o.Log)
	}
}

// secrets are the Secrets of the namespace, by name.
func (w *world) secrets(t *testing.T) map[string]corev1.Secret {
	t.Helper()
	var list corev1.SecretList
	if err := w.Client.List(t.Context(), &list, client.InNamespace(w.ns)); err != nil {
		t.Fatal(err)
	}
	found := map[string]corev1.Secret{}
	for _, secret := range list.Items {
		found[secret.Name] = secret
	}
	return found
}

// pair checks that the results name a private key's Secret and its public half among keys, and returns both Secrets.
func (w *world) pair(t *testing.T, o rehearsal.Outcome, keys int) (private, public corev1.Secret) {
	t.Helper()
	all := w.secrets(t)
	private, public = all[o.Results["privateKeySecretName"]], all[o.Results["publicKeySecretName"]]
	if private.Type != corev1.SecretTypeSSHAuth || len(public.Data) != keys || o.Results["privateKeySecretNamespace"] != w.ns || o.Results["publicKeySecretNamespace"] != w.ns {
		t.Fatalf("results %v name %s with %v and %v", o.Results, private.Type, private.Data, public.Data)
	}
	signer, err := ssh.ParsePrivateKey(private.Data["ssh-privatekey"])
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	fits := false
	for name, line := range public.Data {
		fits = fits || strings.HasPrefix(string(line), want) && strings.HasPrefix(name, "id-rsa-") && strings.HasSuffix(name, ".pub")
	}
	if !fits || !strings.HasPrefix(o.Results["publicKey"], want) {
		t.Fatalf("no public key of %v is that of %s; the result is %q", public.Data, want, o.Results["publicKey"])
	}
	return private, public
}

func makes(t *testing.T, w *world) {
	options := []string{"user:root", "disable-strict-host-key-checking:true", "additional-ssh-options:-C -p 8022"}
	o := w.Run(t, w.taskRun(params{"privateKeyConnectionOptions": options, "setOwnerReference": "true", "additionalSSHKeygenOptions": ""}))
	ended(t, o, 0, "")
	private, public := w.pair(t, o, 1)
	if len(private.Data) != 4 || string(private.Data["additional-ssh-options"]) != "-C -p 8022" || !strings.HasPrefix(private.Name, "private-key-") || !strings.HasPrefix(public.Name, "public-key-") {
		t.Errorf("the Secrets are %s with %v and %s", private.Name, slices.Collect(maps.Keys(private.Data)), public.Name)
	}
	if !strings.Contains(o.Log, "The key fingerprint is: SHA256:") || strings.Contains(o.Log+o.Out, "PRIVATE KEY") {
		t.Errorf("it logged %s %s", o.Log, o.Out)
	}
	if key := o.Results["publicKey"]; !strings.HasPrefix(key, "ssh-rsa ") || !strings.HasSuffix(key, " root@run") {
		t.Errorf("the public key is %q", key)
	}
	for _, secret := range []corev1.Secret{private, public} {
		if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != "uid-of-run" {
			t.Errorf("%s is owned by %v", secret.Name, secret.OwnerReferences)
		}
	}
}

func (w *world) create(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	secret.Namespace = w.ns
	if err := w.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

func adds(t *testing.T, w *world) {
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"id_rsa.pub": []byte("ssh-rsa AAAA other")}})
	o := w.Run(t, w.taskRun(params{"publicKeySecretName": "keys", "privateKeySecretName": "mine"}))
	ended(t, o, 0, "")
	private, public := w.pair(t, o, 2)
	if private.Name != "mine" || public.Name != "keys" || string(public.Data["id_rsa.pub"]) != "ssh-rsa AAAA other" {
		t.Errorf("the Secrets are %s and %s with %v", private.Name, public.Name, public.Data)
	}
}

func neverOverwrites(t *testing.T, w *world) {
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Data: map[string][]byte{"ssh-privatekey": []byte("kept")}})
	ended(t, w.Run(t, w.taskRun(params{"privateKeySecretName": "mine"})), 253, "private key's secret "+w.ns+"/mine already exists")
	if all := w.secrets(t); len(all) != 1 || string(all["mine"].Data["ssh-privatekey"]) != "kept" {
		t.Errorf("the Secrets are %v", all)
	}
}

func leavesNothing(t *testing.T, w *world) {
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Immutable: new(true), Data: map[string][]byte{"a": []byte("b")}})
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"a": []byte("b")}})
	ended(t, w.Run(t, w.taskRun(params{"publicKeySecretName": "fixed"})), 250, "adding to the public key's Secret "+w.ns+"/fixed")
	for _, name := range []string{"", "keys"} {
		run := w.taskRun(params{"publicKeySecretName": name})
		run.NoResults = true
		ended(t, w.Run(t, run), 248, "writing result publicKeySecretName")
	}
	for what, code := range map[string]int{"publicKeySecretNamespace": 251, "privateKeySecretNamespace": 249} {
		run := w.taskRun(params{what: "default", "publicKeySecretName": "keys", "privateKeySecretName": "mine"})
		run.Forbidden = true
		ended(t, w.Run(t, run), code, "is forbidden")
	}
	if all := w.secrets(t); len(all) != 2 || len(all["keys"].Data) != 1 || len(all["fixed"].Data) != 1 {
		t.Errorf("the Secrets are %v", all)
	}
}

func refuses(t *testing.T, w *world) {
	for said, c := range map[string]struct {
		code int
		p    params
	}{
		"invalid public-key-secret-name value: a lowercase RFC 1123 subdomain must consist of":  {255, params{"publicKeySecretName": "public secret"}},
		"invalid private-key-secret-name value: a lowercase RFC 1123 subdomain must consist of": {255, params{"privateKeySecretName": "private secret"}},
		"are both " + w.ns + "/one":                                {255, params{"privateKeySecretName": "one", "publicKeySecretName": "one"}},
		`no key found before "user"; pair should be in "KEY:VAL"`:  {255, params{"privateKeyConnectionOptions": []string{"user"}}},
		`setOwnerReference: "yes" is neither`:                      {255, params{"setOwnerReference": "yes"}},
		"cannot own an object in namespace default":                {255, params{"setOwnerReference": "true", "publicKeySecretNamespace": "default"}},
		"additionalSSHKeygenOptions: unknown option -- 3":          {254, params{"additionalSSHKeygenOptions": "-3 unknown-param test"}},
		"additionalSSHKeygenOptions: -t dsa is not supported; rsa": {254, params{"additionalSSHKeygenOptions": "-t dsa"}},
	} {
		ended(t, w.Run(t, w.taskRun(c.p)), c.code, said)
	}
	if all := w.secrets(t); len(all) > 0 {
		t.Errorf("the Secrets are %v", all)
	}
}

func survivesKills(t *testing.T, w *world) {
	stage := w.Stage
	for name, p := range map[string]params{
		"new Secrets":       {},
		"named Secrets":     {"privateKeySecretName": "mine", "publicKeySecretName": "yours"},
		"a Secret of keys":  {"publicKeySecretName": "keys"},
		"further options":   {"privateKeyConnectionOptions": []string{"user:debian"}},
		"Secrets with name": {"privateKeySecretName": "mine", "publicKeySecretName": "keys"},
	} {
		t.Run(name, func(t *testing.T) {
			stage.Killed(t, func(t *testing.T) rehearsal.Run {
				w = newWorld(t, stage)
				w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, Data: map[string][]byte{"a": []byte("b")}})
				return w.taskRun(p)
			}, func(t *testing.T, _ rehearsal.Run, o rehearsal.Outcome) {
				ended(t, o, 0, "")
				secrets, keys := 3, 1
				if p["publicKeySecretName"] == "keys" {
					secrets, keys = 2, 2
				}
				w.pair(t, o, keys)
				if all := w.secrets(t); len(all) != secrets {
					t.Errorf("there are %d Secrets, want %d: %v", len(all), secrets, slices.Sorted(maps.Keys(all)))
				}
			})
		})
	}
}
