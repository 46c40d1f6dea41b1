package crd

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/loader"
)

const metaPackage = "k8s.io/apimachinery/pkg/apis/meta/v1"

// durations matches what time.ParseDuration takes, in its usual order, up to what fits into
// nanoseconds.
const durations = `^-?(0|([0-9]{1,6}(\.[0-9]{1,9})?h)?([0-9]{1,7}(\.[0-9]{1,9})?m)?([0-9]{1,9}(\.[0-9]{1,9})?s)?` +
	`([0-9]{1,12}(\.[0-9]{1,9})?ms)?([0-9]{1,15}(\.[0-9]{1,9})?(us|µs|μs))?([0-9]{1,18}ns)?)$`

// refuseOddDurations has the API server refuse a text that is no duration. Once it were stored, no
// client of Go's could read the object, nor any list with it.
func refuseOddDurations(parser *crd.Parser) {
	known := parser.PackageOverrides[metaPackage]
	parser.PackageOverrides[metaPackage] = func(p *crd.Parser, pkg *loader.Package) {
		known(p, pkg)
		p.Schemata[crd.TypeIdent{Name: "Duration", Package: pkg}] = apiextensionsv1.JSONSchemaProps{
			Type: "string", Pattern: durations, MinLength: new(int64(1)),
		}
	}
}
