//go:build e2e

package admission

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
)

// boundDocuments is how long the API server may take to fetch the documents of an API that others answer for.
const boundDocuments = 10 * time.Minute

var _ = Describe("an API that virt-api answers for", func() {
	DescribeTable("is described by the API server, to clients that ask what there is and to those that validate",
		func(ctx context.Context, version string, resource metav1.APIResource, operations map[string]string) {
			By("asking what there is of " + version)
			client := suite.World.Kube.Discovery()
			Eventually(func(g Gomega) {
				served, err := client.ServerResourcesForGroupVersion(version)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(served.APIResources).To(ContainElement(And(
					HaveField("Name", resource.Name), HaveField("Kind", resource.Kind), HaveField("Namespaced", true))))
			}).WithContext(ctx).WithTimeout(boundDocuments).WithPolling(time.Second).Should(Succeed())

			By("reading the document of " + version)
			Eventually(func(g Gomega) {
				documents, err := client.OpenAPIV3().Paths()
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(documents).To(HaveKey("apis/" + version))
				content, err := documents["apis/"+version].Schema("application/json")
				g.Expect(err).NotTo(HaveOccurred())
				var document struct {
					Paths      map[string]map[string]json.RawMessage
					Components struct {
						Schemas map[string]struct {
							Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
						}
					}
				}
				g.Expect(json.Unmarshal(content, &document)).To(Succeed())
				for path, method := range operations {
					path = "/apis/" + version + "/namespaces/{namespace}/" + path
					g.Expect(document.Paths).To(HaveKey(path))
					g.Expect(document.Paths[path]).To(HaveKey(method), path)
				}
				if resource.Name == "uploadtokenrequests" { // which alone is an object of its own
					kinds := []metav1.GroupVersionKind{}
					for _, schema := range document.Components.Schemas {
						kinds = append(kinds, schema.Kinds...)
					}
					g.Expect(kinds).To(ContainElement(metav1.GroupVersionKind{Group: "upload.cdi.kubevirt.io", Version: "v1beta1", Kind: resource.Kind}))
				}
			}).WithContext(ctx).WithTimeout(boundDocuments).WithPolling(time.Second).Should(Succeed())
		},
		Entry("subresources", SpecTimeout(25*time.Minute), "subresources.kubevirt.io/v1",
			metav1.APIResource{Name: "virtualmachines/start", Kind: "VirtualMachine"}, subresources),
		Entry("subresources, by their former version", SpecTimeout(25*time.Minute), "subresources.kubevirt.io/v1alpha3",
			metav1.APIResource{Name: "virtualmachineinstances/pause", Kind: "VirtualMachineInstance"}, subresources),
		Entry("tokens for uploads", SpecTimeout(25*time.Minute), "upload.cdi.kubevirt.io/v1beta1",
			metav1.APIResource{Name: "uploadtokenrequests", Kind: "UploadTokenRequest"}, map[string]string{"uploadtokenrequests": "post"}),
		Entry("templates", SpecTimeout(25*time.Minute), "subresources.template.kubevirt.io/v1beta1",
			metav1.APIResource{Name: "virtualmachinetemplates/process", Kind: "ProcessedVirtualMachineTemplate"},
			map[string]string{"virtualmachinetemplates/{name}/process": "post", "virtualmachinetemplates/{name}/create": "post"}),
	)
})

// subresources are some of the paths of subresources, with a method that each has.
var subresources = map[string]string{
	"virtualmachines/{name}/start": "put", "virtualmachineinstances/{name}/pause": "put",
	"virtualmachineinstances/{name}/console": "get", "virtualmachineinstances/{name}/guestosinfo": "get",
}
