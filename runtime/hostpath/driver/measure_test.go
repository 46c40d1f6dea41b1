package driver_test

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/slipway-vm/slipway/internal/metric"
	"github.com/slipway-vm/slipway/runtime/hostpath/metrics"
)

func TestMetricsTellOfEachPool(t *testing.T) {
	n := serve(t, pools{"fast": t.TempDir(), "gone": "/nonexistent/pool"})
	volume := asked("pvc-1", true)
	volume.Parameters = map[string]string{"storagePool": "fast"}
	_, err := n.CreateVolume(t.Context(), volume)
	check(t, err)
	got := scrape(t, metrics.Collector{Node: "node-1", Measure: n.Measure})
	for series, want := range map[string]float64{
		"slipway_storage_pool_usable node-1 fast":         1,
		"slipway_storage_pool_usable node-1 gone":         0,
		"slipway_storage_pool_volumes node-1 fast":        1,
		"slipway_storage_pool_snapshots node-1 fast":      0,
		"slipway_storage_pool_promised_bytes node-1 fast": 8 << 20,
	} {
		if value, ok := got[series]; !ok || value != want {
			t.Errorf("%s is %v (%v), want %v", series, value, ok, want)
		}
	}
	if _, ok := got["slipway_storage_pool_volumes node-1 gone"]; ok || len(got) != len(metrics.All())+1 {
		t.Errorf("told: %v", got)
	}
	var stat unix.Statfs_t
	check(t, unix.Statfs(n.pools["fast"], &stat))
	total := float64(int64(stat.Blocks) * stat.Frsize)
	if size := got["slipway_storage_pool_capacity_bytes node-1 fast"]; size != total {
		t.Errorf("the pool has %v bytes, want %v", size, total)
	}
	for _, part := range []string{"available", "used"} {
		if size := got["slipway_storage_pool_"+part+"_bytes node-1 fast"]; size <= 0 || size >= total {
			t.Errorf("%s are %v bytes of %v", part, size, total)
		}
	}
}

// scrape returns the values that a collector tells, by name and values of labels.
func scrape(t *testing.T, collector prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	check(t, registry.Register(collector))
	families, err := registry.Gather()
	check(t, err)
	values := map[string]float64{}
	for _, family := range families {
		if !slices.ContainsFunc(metrics.All(), func(m metric.Metric) bool { return m.Name == family.GetName() }) {
			t.Errorf("%s is not on the list", family.GetName())
		}
		for _, series := range family.GetMetric() {
			key := family.GetName()
			for _, label := range series.GetLabel() {
				key += " " + label.GetValue()
			}
			values[key] = series.GetGauge().GetValue()
		}
	}
	return values
}
