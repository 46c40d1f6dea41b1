package metric

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Register has c told by this process. One that tells the same is replaced: a program has one of
// each, and a test that runs several programs sees the last.
func Register(c prometheus.Collector) error {
	err := metrics.Registry.Register(c)
	if before, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		metrics.Registry.Unregister(before.ExistingCollector)
		err = metrics.Registry.Register(c)
	}
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}
