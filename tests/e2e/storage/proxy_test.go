//go:build e2e

package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
	"github.com/slipway-vm/slipway/tests/fixture/forward"
)

var _ = Describe("an import by a proxy", func() {
	It("has the proxy's password, which is shown nowhere", func(ctx context.Context) {
		serving, stop := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(stop)
		files, err := suite.World.Serve(serving, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			http.ServeContent(w, r, "disk.raw", time.Time{}, bytes.NewReader(make([]byte, 1<<20)))
		}))
		Expect(err).NotTo(HaveOccurred())
		login := url.UserPassword("importer", "pa55/word")
		by := forward.Handler(login, map[string]string{"files.invalid:80": strings.TrimPrefix(files, "http://")})
		root, err := suite.World.Serve(serving, by)
		Expect(err).NotTo(HaveOccurred())
		setProxy(ctx, root, login)

		ns := suite.Namespace(ctx)
		suite.Create(ctx, fixture.DataVolume(ns, "disk", "64Mi", fixture.HTTP("http://files.invalid/disk.raw")))
		suite.DataVolume(ctx, ns, "disk", cdiv1.Succeeded)
		Expect(by.Gets.Load()).To(BeNumerically(">", 0))
		Expect(by.Refused.Load()).To(BeZero())
	}, SpecTimeout(15*time.Minute))
})

// setProxy has http addresses read by the proxy at root until the spec ends, but for those of the machine that it is on, which are other specs'.
func setProxy(ctx context.Context, root string, login *url.Userinfo) {
	GinkgoHelper()
	address, err := url.Parse(root)
	Expect(err).NotTo(HaveOccurred())
	machine := address.Hostname()
	address.User = login
	patch, err := json.Marshal([]map[string]any{{
		"op": "add", "path": "/spec/config/importProxy", "value": map[string]string{"HTTPProxy": address.String(), "noProxy": machine},
	}})
	Expect(err).NotTo(HaveOccurred())
	set := func(ctx context.Context, annotation any, want string) {
		hco := &hcov1.HyperConverged{ObjectMeta: metav1.ObjectMeta{Namespace: names.InstallNamespace, Name: names.HyperConvergedName}}
		change, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{hcov1.AnnotationCDIPatch: annotation}}})
		Expect(err).NotTo(HaveOccurred())
		Expect(suite.World.Client.Patch(ctx, hco, client.RawPatch("application/merge-patch+json", change))).To(Succeed())
		config := &cdiv1.CDIConfig{ObjectMeta: metav1.ObjectMeta{Name: names.CDIConfigName}}
		err = suite.World.Await(ctx, GinkgoWriter, config, suite.BoundEnd, func(obj client.Object) (string, bool, error) {
			now := ""
			if shown := obj.(*cdiv1.CDIConfig).Status.ImportProxy; shown != nil {
				now = ptr.Deref(shown.HTTPProxy, "")
			}
			return fmt.Sprintf("the proxy of imports: %q", now), now == want, nil
		})
		Expect(err).NotTo(HaveOccurred())
	}
	set(ctx, string(patch), "http://xxxxx@"+address.Host)
	DeferCleanup(func(ctx context.Context) { set(ctx, nil, "") })
}
