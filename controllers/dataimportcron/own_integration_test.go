//go:build integration

package dataimportcron_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/transfer"
)

// TestImportsThatWereLeftGoWithTheNext makes a DataImportCron anew whose imports go with it, as HyperConverged does.
func TestImportsThatWereLeftGoWithTheNext(t *testing.T) {
	w := start(t)
	goes := func(cron *cdiv1.DataImportCron) { cron.Spec.RetentionPolicy = new(cdiv1.DataImportCronRetainNone) }
	w.create("cron", goes)
	dv := w.importing("cron")
	w.end(dv.Name, transfer.Result{Digest: "slipway1:00"})
	w.until("the image is up to date", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "UpToDate True" })

	former := w.cron("cron")
	w.must(w.Delete(t.Context(), former, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	source, _ := w.source()
	for _, object := range []client.Object{dv, source} { // as the garbage collector does
		w.must(w.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))))
	}
	w.must(w.Patch(t.Context(), former, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.create("cron", goes)
	w.until("the next one has the image", func() bool { return w.reason("cron", cdiv1.DataImportCronUpToDate) == "UpToDate True" })
	uid := w.cron("cron").UID
	w.until("the image goes with the next one", func() bool {
		again := w.importing("cron")
		if again.UID != dv.UID {
			t.Fatalf("%s is imported again", again.Name)
		}
		owners := again.OwnerReferences
		return len(owners) == 1 && owners[0].UID == uid
	})
	w.until("so does the DataSource, which names it", func() bool {
		source, claim := w.source()
		return claim == dv.Name && len(source.OwnerReferences) == 1 && source.OwnerReferences[0].UID == uid
	})
}
