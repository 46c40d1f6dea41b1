//go:build e2e

package storage

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/registries"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// tinyInRegistry serves a registry with the tiny guest's container disk, and returns the disk's address and the registry's authority.
func tinyInRegistry(ctx context.Context) (string, []byte) {
	GinkgoHelper()
	return tinyBehind(ctx, nil)
}

// tinyBehind is tinyInRegistry of a registry that lets only login in; nil lets everybody in.
func tinyBehind(ctx context.Context, login *types.DockerAuthConfig) (string, []byte) {
	GinkgoHelper()
	images, err := suite.World.Images()
	Expect(err).NotTo(HaveOccurred())
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	root, authority, err := suite.World.ServeTLS(serving, lets(login, registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
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
		ReportWriter: GinkgoWriter, DestinationCtx: &types.SystemContext{DockerInsecureSkipTLSVerify: types.OptionalBoolTrue, DockerAuthConfig: login},
	})
	Expect(err).NotTo(HaveOccurred())
	return address, authority
}

// lets is a server that lets only login in, or everybody when that is nil.
func lets(login *types.DockerAuthConfig, server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if login != nil && (user != login.Username || password != login.Password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		server.ServeHTTP(w, r)
	})
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

		By("reading it without a check of certificates")
		trust(ctx, strings.Split(address, "/")[2])
		suite.Create(ctx, fixture.DataVolume(ns, "unchecked", "256Mi", fixture.Registry(address, "")))
		unchecked := suite.DataVolume(ctx, ns, "unchecked", cdiv1.Succeeded)
		Expect(unchecked.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, dv.Annotations[names.AnnotationDigest]))

		By("looking for it at the mirrors of a registry that is not there")
		mirror(ctx, ns, strings.Split(address, "/")[2])
		suite.Create(ctx, fixture.DataVolume(ns, "mirrored", "256Mi", fixture.Registry("docker://registry.invalid/guests/tiny:v1", "")))
		mirrored := suite.DataVolume(ctx, ns, "mirrored", cdiv1.Succeeded)
		Expect(mirrored.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, dv.Annotations[names.AnnotationDigest]))
	}, SpecTimeout(25*time.Minute))
})

var _ = Describe("an import of an image that the node pulls", func() {
	It("fills a claim with the container disk, and says why there is none", func(ctx context.Context) {
		ns := suite.Namespace(ctx)
		suite.Create(ctx,
			fixture.DataVolume(ns, "tiny", "256Mi", fixture.PulledByNode(suite.TinyImage())),
			fixture.DataVolume(ns, "missing", "256Mi", fixture.PulledByNode("registry.invalid/guests/tiny:v1")),
		)
		dv := suite.DataVolume(ctx, ns, "tiny", cdiv1.Succeeded)
		Expect(string(dv.Status.Progress)).To(Equal("100.0%"))
		Expect(dv.Annotations[names.AnnotationDigest]).NotTo(BeEmpty())

		missing := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "missing"}}
		err := suite.World.Await(ctx, GinkgoWriter, missing, suite.BoundEnd, func(obj client.Object) (string, bool, error) {
			for _, c := range obj.(*cdiv1.DataVolume).Status.Conditions {
				if c.Type == cdiv1.DataVolumeRunning {
					return "the kubelet says why: " + c.Reason + " " + c.Message, strings.Contains(c.Reason, "ImagePull") && strings.Contains(c.Message, "registry.invalid"), nil
				}
			}
			return "the kubelet says why", false, nil
		})
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(20*time.Minute))
})

// mirror makes registry the second mirror of registry.invalid until the spec ends, by a ConfigMap of the given name; the first is not there.
func mirror(ctx context.Context, name, registry string) {
	GinkgoHelper()
	conf := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: name},
		Data: map[string]string{registries.Key: fmt.Sprintf(
			"[[registry]]\nlocation = %q\n[[registry.mirror]]\nlocation = %q\n[[registry.mirror]]\nlocation = %q\ninsecure = true\n",
			"registry.invalid", "mirror.invalid", registry)},
	}
	suite.Create(ctx, conf)
	DeferCleanup(func(ctx context.Context) { Expect(suite.World.Client.Delete(ctx, conf)).To(Succeed()) })
	set := func(ctx context.Context, value, want string) {
		hco := &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.HyperConvergedName}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+names.AnnotationRegistries+`":`+value+`}}}`))
		Expect(suite.World.Client.Patch(ctx, hco, patch)).To(Succeed())
		cdi := &cdiv1.CDI{ObjectMeta: metav1.ObjectMeta{Name: names.CDIName}}
		err := suite.World.Await(ctx, GinkgoWriter, cdi, suite.BoundEnd, func(obj client.Object) (string, bool, error) {
			now := obj.GetAnnotations()[names.AnnotationRegistries]
			return fmt.Sprintf("the ConfigMap with registries.conf: %q", now), now == want, nil
		})
		Expect(err).NotTo(HaveOccurred())
	}
	set(ctx, `"`+name+`"`, name)
	DeferCleanup(func(ctx context.Context) { set(ctx, "null", "") })
}

// trust makes registry one of the insecure ones until the spec ends.
func trust(ctx context.Context, registry string) {
	GinkgoHelper()
	set := func(ctx context.Context, registries string, want []string) {
		hco := &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.HyperConvergedName}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"storage":{"storageImport":{"insecureRegistries":`+registries+`}}}}`))
		Expect(suite.World.Client.Patch(ctx, hco, patch)).To(Succeed())
		config := &cdiv1.CDIConfig{ObjectMeta: metav1.ObjectMeta{Name: names.CDIConfigName}}
		err := suite.World.Await(ctx, GinkgoWriter, config, suite.BoundEnd, func(obj client.Object) (string, bool, error) {
			now := obj.(*cdiv1.CDIConfig).Spec.InsecureRegistries
			return fmt.Sprintf("insecure registries: %v", now), slices.Equal(now, want), nil
		})
		Expect(err).NotTo(HaveOccurred())
	}
	set(ctx, `["`+registry+`"]`, []string{registry})
	DeferCleanup(func(ctx context.Context) { set(ctx, "null", nil) })
}
