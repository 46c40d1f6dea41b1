// Package promql holds the rules for Prometheus to Prometheus' own parser and engine: each is read, asks only for what is exported,
// records something, and alerts when it should and only then. It is a module of its own, so that Slipway does not depend on Prometheus.
package promql
