//go:build e2e

package admission

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

var _ = Describe("TLS", Serial, Label("alone"), func() {
	It("is spoken by all servers as HyperConverged says, without a restart", func(ctx context.Context) {
		servers := map[string]string{
			"virt-api": "8443", "virt-api's metrics": "8444", "virt-handler": "8186", "virt-controller": "8443",
			"cdi-uploadproxy": "8443", "virt-exportproxy": "8443", "virt-operator": "9443",
		}
		pods := podsOf(ctx)
		DeferCleanup(profile, `null`)

		By("asking for what nobody can speak")
		Expect(setProfile(ctx, `{"type":"Custom","custom":{"minTLSVersion":"VersionTLS12","ciphers":["ECDHE-RSA-AES128-GCM-SHA256","ROT13"]}}`)).
			To(MatchError(ContainSubstring("spec.security.tlsSecurityProfile.custom.ciphers[1]")))
		Expect(setProfile(ctx, `{"type":"Custom","custom":{"minTLSVersion":"VersionTLS13","ciphers":["ECDHE-ECDSA-AES128-GCM-SHA256"]}}`)).
			To(MatchError(ContainSubstring("You cannot specify ciphers when")))

		for _, step := range []struct {
			profile string
			speaks  bool
		}{{`null`, true}, {`{"type":"Modern","modern":{}}`, false}, {`null`, true}} {
			By("speaking TLS 1.2 when the profile is " + step.profile)
			profile(ctx, step.profile)
			for name, port := range servers {
				Eventually(func(ctx context.Context) error {
					return speaks12(ctx, pods, name, port, step.speaks)
				}).WithContext(ctx).WithTimeout(time.Minute).WithPolling(200*time.Millisecond).Should(Succeed(), name)
			}
		}
		Expect(podsOf(ctx)).To(Equal(pods), "components were started again")
	}, SpecTimeout(10*time.Minute))
})

var _ = Describe("certificates", Serial, Label("alone"), func() {
	It("are valid for as long as HyperConverged says, at once", func(ctx context.Context) {
		pods := podsOf(ctx)
		servers := map[string]string{"virt-api": "8443", "virt-operator": "9443", "virt-exportproxy": "8443", "cdi-uploadproxy": "8443"}
		DeferCleanup(lifetimes, `null`)
		Expect(setSecurity(ctx, `{"certConfig":{"server":{"duration":"9m"}}}`)).To(MatchError(ContainSubstring("spec.security.certConfig.server.duration")))
		for _, step := range []struct {
			set         string
			least, most time.Duration
		}{{`{"server":{"duration":"20m","renewBefore":"10m"}}`, 9 * time.Minute, 20 * time.Minute}, {`null`, 11 * time.Hour, 24 * time.Hour}} {
			lifetimes(ctx, step.set)
			for name, port := range servers {
				Eventually(func(ctx context.Context) error {
					//nolint:gosec // whoever it is, the certificate is looked at
					dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
					conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(pods[name], port))
					if err != nil {
						return err
					}
					defer conn.Close()
					left := time.Until(conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter)
					if left < step.least || left > step.most {
						return fmt.Errorf("the certificate of %s is valid for %s", name, left)
					}
					return nil
				}).WithContext(ctx).WithTimeout(2*time.Minute).WithPolling(500*time.Millisecond).Should(Succeed(), name)
			}
		}
	}, SpecTimeout(10*time.Minute))
})

func lifetimes(ctx context.Context, set string) {
	GinkgoHelper()
	Expect(setSecurity(ctx, `{"certConfig":`+set+`}`)).To(Succeed())
}

// podsOf are the addresses of the components' pods, by the component's name. It waits until none is being replaced, as after an update.
func podsOf(ctx context.Context) map[string]string {
	GinkgoHelper()
	var all map[string]string
	Eventually(func(ctx context.Context) error {
		var list corev1.PodList
		if err := suite.World.Client.List(ctx, &list, client.InNamespace(names.InstallNamespace), client.HasLabels{virtv1.AppLabel}); err != nil {
			return err
		}
		all = map[string]string{}
		revisions := map[string]string{}
		for i := range list.Items {
			pod := &list.Items[i]
			name, revision := pod.Labels[virtv1.AppLabel], pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
			if before, another := revisions[name]; another && before != revision || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("%s is being replaced", name)
			}
			all[name], revisions[name] = pod.Status.PodIP, revision
		}
		return nil
	}).WithContext(ctx).WithTimeout(5 * time.Minute).WithPolling(time.Second).Should(Succeed())
	all["virt-api's metrics"] = all["virt-api"]
	return all
}

func profile(ctx context.Context, profile string) {
	GinkgoHelper()
	Expect(setProfile(ctx, profile)).To(Succeed())
}

func setProfile(ctx context.Context, profile string) error {
	return setSecurity(ctx, `{"tlsSecurityProfile":`+profile+`}`)
}

// setSecurity writes fields of spec.security, as JSON, into the HyperConverged object.
func setSecurity(ctx context.Context, set string) error {
	hco := &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.HyperConvergedName}}
	change := fmt.Sprintf(`{"spec":{"security":%s}}`, set)
	return suite.World.Client.Patch(ctx, hco, client.RawPatch(types.MergePatchType, []byte(change)))
}

// speaks12 says what is wrong when a server's speaking TLS 1.2 is not as wanted. It speaks TLS 1.3 in any case.
func speaks12(ctx context.Context, pods map[string]string, name, port string, want bool) error {
	if pods[name] == "" {
		return fmt.Errorf("%s has no pod that runs", name)
	}
	shake := func(version uint16) error {
		//nolint:gosec // whoever it is, the version is looked at
		dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}}
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(pods[name], port))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	if err := shake(tls.VersionTLS13); err != nil {
		return fmt.Errorf("%s does not speak TLS 1.3: %w", name, err)
	}
	err := shake(tls.VersionTLS12)
	switch {
	case want && err != nil:
		return fmt.Errorf("%s does not speak TLS 1.2: %w", name, err)
	case !want && err == nil:
		return fmt.Errorf("%s speaks TLS 1.2", name)
	case !want && !strings.Contains(err.Error(), "protocol version"):
		return fmt.Errorf("%s fails otherwise: %w", name, err)
	}
	return nil
}
