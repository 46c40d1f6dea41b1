// Package monitoring holds what others do with the metrics: rules for Prometheus and a
// dashboard for Grafana. The operator installs the rules where the cluster knows their kind.
package monitoring

import _ "embed"

// Rules is a PrometheusRule without a namespace: alerts, and sums that dashboards use.
//
//go:embed rules.yaml
var Rules []byte

// Dashboard is a dashboard of Grafana.
//
//go:embed dashboard.json
var Dashboard []byte
