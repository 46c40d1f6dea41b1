//go:build e2e

package storage

import (
	"context"
	"io"
	"log"
	"strings"
	"time"

	"github.com/containers/image/v5/copy"
	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/oci/archive"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
	"github.com/google/go-containerregistry/pkg/registry"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// tinyInRegistry serves a registry with the tiny guest's container disk, and returns the disk's address and the registry's authority.
func tinyInRegistry(ctx context.Context) (string, []byte) {
	GinkgoHelper()
	images, err := suite.World.Images()
	Expect(err).NotTo(HaveOccurred())
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	root, authority, err := suite.World.ServeTLS(serving, registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	Expect(err).NotTo(HaveOccurred())
	address := strings.Replace(root, "https:", "docker:", 1) + "/guests/tiny:v1"

	from, err := archive.ParseReference(images["guest-tiny"].Archive)
	Expect(err).NotTo(HaveOccurred())
	to, err := docker.ParseReference(strings.TrimPrefix(address, "docker:"))
	Expect(err).NotTo(HaveOccurred())
	policy, err := signature.NewPolicyContext(&signature.Policy{Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(policy.Destroy)
	_, err = copy.Image(ctx, policy, to, from, &copy.Options{
		ReportWriter: GinkgoWriter, DestinationCtx: &types.SystemContext{DockerInsecureSkipTLSVerify: types.OptionalBoolTrue},
	})
	Expect(err).NotTo(HaveOccurred())
	return address, authority
}

var _ = Describe("an import from a registry", func() {
	It("fills a claim with a container disk, from which a VM boots", func(ctx context.Context) {
		address, authority := tinyInRegistry(ctx)
		ns := suite.Namespace(ctx)
		suite.Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "authority"}, Data: map[string]string{"registry.pem": string(authority)}},
			fixture.DataVolume(ns, "tiny", "256Mi", fixture.Registry(address, "authority")),
		)
		dv := suite.DataVolume(ctx, ns, "tiny", cdiv1.Succeeded)
		Expect(string(dv.Status.Progress)).To(Equal("100.0%"))
		Expect(dv.Annotations[names.AnnotationDigest]).NotTo(BeEmpty())

		suite.Create(ctx, fixture.VM(ns, "tiny", fixture.Claim("root", "tiny")))
		vmi := suite.RunningVMI(ctx, ns, "tiny")
		Expect(suite.Shell(ctx, vmi, "uname -s")).To(Equal("Linux"))
	}, SpecTimeout(15*time.Minute))
})
