// Package generatesshkeys makes a pair of SSH keys and keeps each half in a Secret.
package generatesshkeys

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tasks/declare"
)

// Exit codes that clients know.
const (
	codeResults       = 248
	codePrivateCreate = 249
	codePublicCreate  = 250
	codePublicFetch   = 251
	codeClient        = 252
	codePrivateExists = 253
	codeKeygen        = 254
)

// Task is the task's declaration.
func Task() *declare.Task {
	return &declare.Task{
		Name:    "generate-ssh-keys",
		Title:   "Generate SSH keys",
		Summary: "Makes a pair of SSH keys and keeps the private key in one Secret and the public key in another.",
		Details: `
The private key's Secret has the type kubernetes.io/ssh-auth and holds privateKeyConnectionOptions beside the key, so
` + "`execute-in-vm`" + ` can use it as it is. The public key is added to the Secret that publicKeySecretName names, or to a new one.
A private key's Secret that exists is never overwritten. A retry of the same TaskRun takes up what it made before, and a
failure leaves nothing of the pair behind.

Exit codes: 254 options of ssh-keygen, 253 the private key's Secret exists, 252 the API could not be reached, 251 the public key's
Secret could not be read, 250 or 249 the public or private key's Secret could not be written, 248 results, 255 a parameter is wrong.`,
		Image:      declare.Slipway,
		ClientCode: codeClient,
		Params: []declare.Param{
			{Name: "publicKeySecretName", Description: "Secret to add the public key to; by default a new one with a generated name.", Object: declare.Secret},
			{Name: "publicKeySecretNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "namespace"},
			{Name: "privateKeySecretName", Description: "Secret to make for the private key; by default its name is generated.", Object: declare.Secret},
			{Name: "privateKeySecretNamespace", Description: "Its namespace; by default the TaskRun's.", Kind: "namespace"},
			{Name: "privateKeyConnectionOptions", Description: "Further keys of the private key's Secret, each as KEY:VALUE, such as user:debian or disable-strict-host-key-checking:true; an item without a colon continues the value before it after a space.", Array: true, Kind: "connection-options"},
			{Name: "additionalSSHKeygenOptions", Description: "Options of ssh-keygen: -t rsa|ecdsa|ed25519, -b bits, -C comment, -N passphrase, -q, and -a rounds for a key without a passphrase, which needs none. By default an RSA key of 4096 bits. execute-in-vm takes keys without a passphrase.", Kind: "ssh-keygen-options"},
			{Name: "setOwnerReference", Description: "Make the TaskRun own the Secrets that the task makes, so that they go with the run. All must be in one namespace.", Default: "false", Kind: "boolean"},
		},
		Results: []declare.Result{
			{Name: "publicKeySecretName", Description: "Secret with the public key."},
			{Name: "publicKeySecretNamespace", Description: "Its namespace."},
			{Name: "privateKeySecretName", Description: "Secret with the private key."},
			{Name: "privateKeySecretNamespace", Description: "Its namespace."},
			{Name: "publicKey", Description: "The public key, as a line for authorized_keys."},
		},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		},
		Examples: []declare.Example{{
			Title: "Keys for execute-in-vm",
			Params: map[string]any{
				"publicKeySecretName":         "vm-public-keys",
				"privateKeySecretName":        "vm-private-key",
				"privateKeyConnectionOptions": []string{"user:debian", "disable-strict-host-key-checking:true"},
				"additionalSSHKeygenOptions":  "-t ed25519",
			},
		}},
		Run: run,
	}
}

func run(ctx context.Context, call *declare.Call) error {
	p, err := newPair(call)
	if err != nil {
		return declare.Coded(declare.CodeUsage, err)
	}
	options, err := parseKeygenOptions(call.String("additionalSSHKeygenOptions"), p.comment())
	if err != nil {
		return declare.Coded(codeKeygen, fmt.Errorf("additionalSSHKeygenOptions: %w", err))
	}
	if done, err := p.madeBefore(ctx); done || err != nil {
		return err
	}
	if err := p.check(ctx); err != nil {
		return err
	}
	keys, err := generate(options)
	if err != nil {
		return declare.Coded(codeKeygen, fmt.Errorf("additionalSSHKeygenOptions: %w", err))
	}
	call.Log.Info("The key fingerprint is: " + keys.fingerprint)
	return p.keep(ctx, keys)
}

// newPair reads and checks the parameters but those of ssh-keygen.
func newPair(call *declare.Call) (*pair, error) {
	p := &pair{
		call:    call,
		public:  client.ObjectKey{Namespace: call.NamespaceOr("publicKeySecretNamespace"), Name: call.Name("publicKeySecretName")},
		private: client.ObjectKey{Namespace: call.NamespaceOr("privateKeySecretNamespace"), Name: call.Name("privateKeySecretName")},
	}
	if err := p.checkNames(); err != nil {
		return nil, err
	}
	var err error
	if p.options, err = connectionOptions(call.Array("privateKeyConnectionOptions")); err != nil {
		return nil, err
	}
	own, err := call.Bool("setOwnerReference")
	if err != nil || !own {
		return p, err
	}
	owner, err := call.OwnerIn(p.private.Namespace)
	if _, publicErr := call.OwnerIn(p.public.Namespace); err == nil {
		err = publicErr
	}
	p.owners = []metav1.OwnerReference{owner}
	return p, err
}

// checkNames checks the names of the Secrets and their namespaces, in the words that clients know.
func (p *pair) checkNames() error {
	for _, named := range []struct{ what, name string }{
		{"public-key-secret-name", p.public.Name}, {"public-key-secret-namespace", p.public.Namespace},
		{"private-key-secret-name", p.private.Name}, {"private-key-secret-namespace", p.private.Namespace},
	} {
		if problems := validation.IsDNS1123Subdomain(named.name); named.name != "" && len(problems) > 0 {
			return fmt.Errorf("invalid %s value: %s", named.what, problems[0])
		}
	}
	if p.public == p.private && p.public.Name != "" {
		return fmt.Errorf("publicKeySecretName and privateKeySecretName are both %s; the two halves go into two Secrets", p.public)
	}
	return nil
}

// connectionOptions reads items of the form KEY:VALUE into keys of a Secret.
func connectionOptions(items []string) (map[string][]byte, error) {
	pairs, err := declare.Pairs(items)
	if err != nil {
		return nil, fmt.Errorf("privateKeyConnectionOptions: %w", err)
	}
	options := make(map[string][]byte, len(pairs))
	for key, value := range pairs {
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			return nil, fmt.Errorf("privateKeyConnectionOptions: %q is no key of a Secret: %s", key, problems[0])
		}
		if key == corev1.SSHAuthPrivateKey {
			return nil, errors.New("privateKeyConnectionOptions: " + key + " is what this task makes; leave it out")
		}
		options[key] = []byte(strings.TrimSpace(value))
	}
	return options, nil
}
