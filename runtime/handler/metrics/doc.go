// Package metrics tells Prometheus what the node's running guests use. Every scrape asks each
// launcher once; who does not answer in time is left out, and a metric says so.
package metrics
