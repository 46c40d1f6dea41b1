//go:build e2e

package storage

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("an import of a container image that was saved as a file", func() {
	It("gives the disk in it, by the same digest as the disk by itself", func(ctx context.Context) {
		images, err := suite.World.Images()
		Expect(err).NotTo(HaveOccurred())
		archive := images["guest-tiny"].Archive
		Expect(archive).To(BeARegularFile())
		serving, stop := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(stop)
		at, err := suite.World.Serve(serving, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, archive) }))
		Expect(err).NotTo(HaveOccurred())

		ns := suite.Namespace(ctx)
		suite.Create(ctx,
			fixture.DataVolume(ns, "archived", "256Mi", fixture.HTTP(at+"/tiny.tar")),
			fixture.DataVolume(ns, "alone", "256Mi", fixture.HTTP(root+"/disk.qcow2")),
		)
		alone := suite.DataVolume(ctx, ns, "alone", cdiv1.Succeeded)
		Expect(alone.Annotations[names.AnnotationDigest]).NotTo(BeEmpty())
		archived := suite.DataVolume(ctx, ns, "archived", cdiv1.Succeeded)
		Expect(string(archived.Status.Progress)).To(Equal("100.0%"))
		Expect(archived.Annotations).To(HaveKeyWithValue(names.AnnotationDigest, alone.Annotations[names.AnnotationDigest]))
	}, SpecTimeout(20*time.Minute))
})
