//go:build e2e

package tasks

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/internal/stepcache"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/env"
)

var _ = Describe("a step cache that is shared", func() {
	It("spares a namespace the import that another one has done", func(ctx context.Context) {
		const using = env.NamespaceDemo
		url, sum := serveTiny(ctx)
		name := "shared-" + rand.String(5)
		manifest := fmt.Sprintf(`{apiVersion: cdi.kubevirt.io/v1beta1, kind: DataVolume,
  metadata: {name: %s, annotations: {cdi.kubevirt.io/storage.bind.immediate.requested: "true"}},
  spec: {source: {http: {url: %q, checksum: "sha256:%s"}}, storage: {resources: {requests: {storage: 259Mi}}}}}`, name, url, sum)
		params := map[string]any{"manifest": manifest, "waitForSuccess": "true"}
		DeferCleanup(func(ctx context.Context) { removeVolumes(ctx, name, ns, using) }, NodeTimeout(5*time.Minute))

		By("importing it in one namespace")
		first := suite.Succeeds(ctx, "modify-data-object", params)
		Expect(first).To(HaveKeyWithValue("cached", "false"))

		By("letting another namespace use that")
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "step-cache-" + using},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: stepcache.ShareRole},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + using}},
		}
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: using, Name: stepcache.ConfigName}, Data: map[string]string{stepcache.ConfigFrom: ns}}
		for _, object := range []client.Object{binding, config} {
			suite.Create(ctx, object)
			DeferCleanup(func(ctx context.Context) { Expect(suite.World.Client.Delete(ctx, object)).To(Succeed()) }, NodeTimeout(suite.BoundEnd))
		}

		suite.May(ctx, using, "modify-data-object-task", authorizationv1.ResourceAttributes{
			Namespace: ns, Verb: "create", Group: "cdi.kubevirt.io", Resource: "datavolumes", Subresource: "source",
		})

		By("asking for it there")
		run := suite.TaskRunIn(ctx, using, "modify-data-object", params)
		results := suite.Results(ctx, run)
		Expect(results).To(And(HaveKeyWithValue("cached", "true"), HaveKeyWithValue("digest", first["digest"])), suite.TaskLog(ctx, run))
		Expect(suite.TaskLog(ctx, run)).To(ContainSubstring("bringing an entry of another namespace's step cache"))
	}, SpecTimeout(25*time.Minute))
})

// serveTiny serves the tiny guest's disk until the test ends, and returns its URL and sha256.
func serveTiny(ctx context.Context) (url, sum string) {
	GinkgoHelper()
	disk, err := suite.World.Guest(ctx, "tiny")
	Expect(err).NotTo(HaveOccurred())
	data, err := os.ReadFile(disk)
	Expect(err).NotTo(HaveOccurred())
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	root, err := suite.World.Serve(serving, http.FileServer(http.Dir(filepath.Dir(disk))))
	Expect(err).NotTo(HaveOccurred())
	return root + "/" + filepath.Base(disk), fmt.Sprintf("%x", sha256.Sum256(data))
}

// removeVolumes removes a DataVolume of several namespaces, and what their caches keep of it.
func removeVolumes(ctx context.Context, name string, namespaces ...string) {
	GinkgoHelper()
	for _, namespace := range namespaces {
		var list cdiv1.DataVolumeList
		Expect(suite.World.Client.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
		digest := ""
		for _, dv := range list.Items {
			if dv.Name == name {
				digest = dv.Annotations[names.AnnotationDigest]
			}
		}
		for n := range list.Items {
			dv := &list.Items[n]
			if dv.Name == name || digest != "" && dv.Labels[stepcache.LabelState] != "" && dv.Annotations[stepcache.AnnotationDigest] == digest {
				Expect(client.IgnoreNotFound(suite.World.Client.Delete(ctx, dv))).To(Succeed())
			}
		}
	}
}
