//go:build e2e

package lifecycle

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// boundSecret is how long the kubelet may take to bring a changed Secret into a pod.
const boundSecret = 8 * time.Minute

// opsUser makes the user that the agent lets in, and what the liveness probe looks for.
const opsUser = `#cloud-config
runcmd:
  - echo 'ops:x:1000:1000::/home/ops:/bin/sh' >> /etc/passwd
  - echo 'ops:!:20000:0:99999:7:::' >> /etc/shadow
  - mkdir -p /home/ops /run/www && chown 1000:1000 /home/ops
  - echo alive > /run/alive
  - echo well > /run/www/index.html
`

var _ = Describe("a VM that is probed", func() {
	It("is ready as its service is, lets people in by Secrets, and starts again when it is found dead", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		noCloud, first, second := newKey(), newKey(), newKey()
		passwords := secret(ns, "passwords", "ops", "first word")
		keys := secret(ns, "keys", "ops.pub", authorized(first))
		suite.Create(ctx, passwords, keys, secret(ns, "root-keys", "key", authorized(noCloud)))
		suite.Create(ctx, fixture.VM(ns, "probed", fixture.ContainerDisk(suite.TinyImage()), fixture.CloudInit(opsUser), probes, access))
		vmi := suite.RunningVMI(ctx, ns, "probed")
		ip := vmi.Status.Interfaces[0].IP

		By("not being ready while nothing serves")
		notReady(ctx, vmi, "ContainersNotReady")
		suite.Shell(ctx, vmi, "until [ -s /run/www/index.html ]; do sleep 1; done; httpd -p 8080 -h /run/www")
		awaitCondition(ctx, vmi, virtv1.VirtualMachineInstanceReady, corev1.ConditionTrue)
		suite.Shell(ctx, vmi, "killall httpd")
		awaitCondition(ctx, vmi, virtv1.VirtualMachineInstanceReady, corev1.ConditionFalse)

		By("letting in who has a key or a password")
		awaitCondition(ctx, vmi, virtv1.VirtualMachineInstanceAccessCredentialsSynchronized, corev1.ConditionTrue)
		logsIn := func(user string, key ssh.Signer, bound time.Duration) AsyncAssertion {
			return Eventually(func(ctx context.Context) error { return login(ctx, ip, user, key) }).WithContext(ctx).WithTimeout(bound).WithPolling(2 * time.Second)
		}
		logsIn("root", noCloud, suite.BoundEnd).Should(Succeed())
		logsIn("ops", first, suite.BoundEnd).Should(Succeed())
		before := suite.Shell(ctx, vmi, "grep ^ops: /etc/shadow | cut -d: -f2")
		Expect(before).To(HavePrefix("$"), "a password was set")

		By("following its Secrets")
		passwords.StringData, keys.StringData = map[string]string{"ops": "second:word"}, map[string]string{"ops.pub": authorized(second)}
		Expect(suite.World.Client.Update(ctx, passwords)).To(Succeed())
		Expect(suite.World.Client.Update(ctx, keys)).To(Succeed())
		logsIn("ops", second, boundSecret).Should(Succeed())
		logsIn("ops", first, suite.BoundEnd).Should(MatchError(ContainSubstring("unable to authenticate")))
		Eventually(func(ctx context.Context) string { return suite.Shell(ctx, vmi, "grep ^ops: /etc/shadow | cut -d: -f2") }).
			WithContext(ctx).WithTimeout(boundSecret).WithPolling(2 * time.Second).Should(And(HavePrefix("$"), Not(Equal(before))))

		By("being found dead")
		suite.Shell(ctx, vmi, "rm /run/alive")
		next := nextVMI(ctx, vmi)
		Expect(next.Status.Phase).To(Equal(virtv1.Running))
		Eventually(warnings).WithArguments(vmi).WithContext(ctx).WithTimeout(suite.BoundEnd).WithPolling(time.Second).
			Should(ContainElement("LivenessProbeFailed"))
	}, SpecTimeout(40*time.Minute))
})

// probes ask for a page of the guest, and through its agent for a file: late and patiently, so that no guest is found dead that is
// slow on a busy machine.
func probes(vm *virtv1.VirtualMachine) {
	spec := &vm.Spec.Template.Spec
	spec.ReadinessProbe = &virtv1.Probe{
		Handler:       virtv1.Handler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}},
		PeriodSeconds: 2, TimeoutSeconds: 5, FailureThreshold: 2,
	}
	spec.LivenessProbe = &virtv1.Probe{
		Handler:             virtv1.Handler{Exec: &corev1.ExecAction{Command: []string{"cat", "/run/alive"}}},
		InitialDelaySeconds: 180, PeriodSeconds: 5, TimeoutSeconds: 60, FailureThreshold: 6,
	}
}

// access names a Secret for each way into the guest.
func access(vm *virtv1.VirtualMachine) {
	from := func(name string) *virtv1.AccessCredentialSecretSource {
		return &virtv1.AccessCredentialSecretSource{SecretName: name}
	}
	vm.Spec.Template.Spec.AccessCredentials = []virtv1.AccessCredential{
		{SSHPublicKey: &virtv1.SSHPublicKeyAccessCredential{
			Source: virtv1.SSHPublicKeyAccessCredentialSource{Secret: from("root-keys")},
			PropagationMethod: virtv1.SSHPublicKeyAccessCredentialPropagationMethod{
				NoCloud: &virtv1.NoCloudSSHPublicKeyAccessCredentialPropagation{},
			},
		}},
		{SSHPublicKey: &virtv1.SSHPublicKeyAccessCredential{
			Source: virtv1.SSHPublicKeyAccessCredentialSource{Secret: from("keys")},
			PropagationMethod: virtv1.SSHPublicKeyAccessCredentialPropagationMethod{
				QemuGuestAgent: &virtv1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{Users: []string{"ops"}},
			},
		}},
		{UserPassword: &virtv1.UserPasswordAccessCredential{
			Source: virtv1.UserPasswordAccessCredentialSource{Secret: from("passwords")},
			PropagationMethod: virtv1.UserPasswordAccessCredentialPropagationMethod{
				QemuGuestAgent: &virtv1.QemuGuestAgentUserPasswordAccessCredentialPropagation{},
			},
		}},
	}
}

func secret(namespace, name, key, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: map[string]string{key: value}}
}

func newKey() ssh.Signer {
	GinkgoHelper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	signer, err := ssh.NewSignerFromKey(private)
	Expect(err).NotTo(HaveOccurred())
	return signer
}

func authorized(key ssh.Signer) string { return string(ssh.MarshalAuthorizedKey(key.PublicKey())) }

// login logs in to the guest by key, and out.
func login(ctx context.Context, address, user string, key ssh.Signer) error {
	target := net.JoinHostPort(address, "22")
	socket, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", target)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", target, err)
	}
	defer func() { _ = socket.Close() }()
	_ = socket.SetDeadline(time.Now().Add(2 * time.Minute))
	conn, _, _, err := ssh.NewClientConn(socket, target, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // a test guest makes its key at boot
	})
	if err != nil {
		return fmt.Errorf("logging in to %s as %s: %w", target, user, err)
	}
	return conn.Close()
}

// notReady waits until the instance says for which reason it is not ready. It is not to be ready before.
func notReady(ctx context.Context, vmi *virtv1.VirtualMachineInstance, reason string) {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, vmi, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		for _, c := range obj.(*virtv1.VirtualMachineInstance).Status.Conditions {
			if c.Type == virtv1.VirtualMachineInstanceReady && c.Status == corev1.ConditionTrue {
				return "ready", false, errors.New("it is ready")
			}
			if c.Type == virtv1.VirtualMachineInstanceReady {
				return "not ready: " + c.Reason, c.Reason == reason, nil
			}
		}
		return "nobody knows whether it is ready", false, nil
	})
	Expect(err).NotTo(HaveOccurred())
}

// awaitCondition waits until the instance's condition has this status.
func awaitCondition(ctx context.Context, vmi *virtv1.VirtualMachineInstance, kind virtv1.VirtualMachineInstanceConditionType, want corev1.ConditionStatus) {
	GinkgoHelper()
	err := suite.World.Await(ctx, GinkgoWriter, vmi, suite.BoundBoot, func(obj client.Object) (string, bool, error) {
		for _, c := range obj.(*virtv1.VirtualMachineInstance).Status.Conditions {
			if c.Type == kind {
				return strings.TrimSpace(fmt.Sprintf("%s is %s %s %s", kind, c.Status, c.Reason, c.Message)), c.Status == want, nil
			}
		}
		return fmt.Sprintf("no %s", kind), false, nil
	})
	Expect(err).NotTo(HaveOccurred())
}

// warnings are the reasons of the Warning events of an instance.
func warnings(ctx context.Context, vmi *virtv1.VirtualMachineInstance) ([]string, error) {
	var events corev1.EventList
	if err := suite.World.Client.List(ctx, &events, client.InNamespace(vmi.Namespace)); err != nil {
		return nil, err
	}
	var reasons []string
	for _, e := range events.Items {
		if e.InvolvedObject.UID == vmi.UID && e.Type == corev1.EventTypeWarning {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons, nil
}
