package v1beta1

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	hcov1 "github.com/slipway-vm/slipway/internal/api/hco/v1"
)

// Whatever the stored version can say, the flat one says too: nothing is lost on the way there and back.
func TestConversionLosesNothing(t *testing.T) {
	filler := randfill.NewWithSeed(1).NilChance(0.2).NumElements(0, 3).Funcs(
		func(time *metav1.Time, c randfill.Continue) { *time = metav1.Unix(c.Int63n(1e9), 0) },
		func(*metav1.TypeMeta, randfill.Continue) {},
	)
	for range 200 {
		before := &hcov1.HyperConverged{}
		filler.Fill(before)
		flat, after := &HyperConverged{}, &hcov1.HyperConverged{}
		if err := flat.ConvertFrom(before); err != nil {
			t.Fatal(err)
		}
		if err := flat.ConvertTo(after); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("there and back:\n%+v\nbecame\n%+v", before, after)
		}
	}
}
