//go:build e2e

package faults

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

var _ = Describe("an import that is under way", func() {
	DescribeTable("goes on to its end when a part is killed with -9",
		func(ctx context.Context, part string) {
			serving, stop := context.WithCancel(context.WithoutCancel(ctx))
			DeferCleanup(stop)
			const path = "/disk.raw"
			server := newHeldImage(path) // so that it is under way for as long as need be
			root, err := suite.World.Serve(serving, server)
			Expect(err).NotTo(HaveOccurred())
			ns := suite.Namespace(ctx)
			suite.Create(ctx, fixture.DataVolume(ns, "slow", "128Mi", fixture.HTTP(root+path)))
			suite.DataVolume(ctx, ns, "slow", cdiv1.ImportInProgress)
			killPods(ctx, part)
			server.release(path)
			dv := suite.DataVolume(ctx, ns, "slow", cdiv1.Succeeded)
			Expect(dv.Status.RestartCount).To(BeZero(), "the importer was not disturbed")
			waitReady(ctx, part)
		},
		Entry("virt-handler", SpecTimeout(20*time.Minute), "virt-handler"),
		Entry("virt-controller", SpecTimeout(20*time.Minute), "virt-controller"),
		Entry("virt-api", SpecTimeout(20*time.Minute), "virt-api"),
	)
})
