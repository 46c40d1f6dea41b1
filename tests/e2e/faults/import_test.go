//go:build e2e

package faults

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/tests/e2e/suite"
	"github.com/slipway-vm/slipway/tests/fixture"
)

// A slow disk: 64 MiB, of which each connection gets 1 MiB a second.
const (
	slowSize = 64 << 20
	slowRate = 1 << 20
)

var _ = Describe("an import that is under way", func() {
	DescribeTable("goes on to its end when a part is killed with -9",
		func(ctx context.Context, part string) {
			serving, stop := context.WithCancel(context.WithoutCancel(ctx))
			DeferCleanup(stop)
			root, err := suite.World.Serve(serving, http.HandlerFunc(serveSlowly))
			Expect(err).NotTo(HaveOccurred())
			ns := suite.Namespace(ctx)
			suite.Create(ctx, fixture.DataVolume(ns, "slow", "128Mi", fixture.HTTP(root+"/disk.raw")))
			suite.DataVolume(ctx, ns, "slow", cdiv1.ImportInProgress)
			killPods(ctx, part)
			dv := suite.DataVolume(ctx, ns, "slow", cdiv1.Succeeded)
			Expect(dv.Status.RestartCount).To(BeZero(), "the importer was not disturbed")
			waitReady(ctx, part)
		},
		Entry("virt-handler", SpecTimeout(20*time.Minute), "virt-handler"),
		Entry("virt-controller", SpecTimeout(20*time.Minute), "virt-controller"),
		Entry("virt-api", SpecTimeout(20*time.Minute), "virt-api"),
	)
})

// serveSlowly serves the same random disk each time, in ranges too, at the slow rate.
func serveSlowly(w http.ResponseWriter, r *http.Request) {
	disk := make([]byte, slowSize)
	source := rand.NewChaCha8([32]byte{7})
	_, _ = source.Read(disk) // never fails
	w.Header().Set("ETag", `"v1"`)
	http.ServeContent(&slowWriter{ResponseWriter: w, done: r.Context().Done()}, r, "disk.raw", time.Time{}, bytes.NewReader(disk))
}

// slowWriter writes a piece at each tick.
type slowWriter struct {
	http.ResponseWriter
	done <-chan struct{}
}

func (s *slowWriter) Write(p []byte) (int, error) {
	const piece = slowRate / 10
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	written := 0
	for written < len(p) {
		select {
		case <-s.done:
			return written, context.Canceled
		case <-ticker.C:
		}
		n, err := s.ResponseWriter.Write(p[written:min(len(p), written+piece)])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
