package dataimportcron

import (
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

func TestForeignClaimsAndAccounts(t *testing.T) {
	for name, c := range map[string]struct {
		source  *cdiv1.DataVolumeSource
		foreign string
	}{
		"none":                           {},
		"a file":                         {source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{}}},
		"a claim":                        {source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "base"}}},
		"a claim of the same namespace":  {source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "images", Name: "base"}}},
		"a claim of another one's names": {source: &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: "base"}}, foreign: "golden/base"},
	} {
		cron := &cdiv1.DataImportCron{}
		cron.Namespace, cron.Spec.Template.Spec.Source = "images", c.source
		got := ""
		if source := Foreign(cron); source != nil {
			got = source.Mark()
		}
		if got != c.foreign {
			t.Errorf("%s: it is %q, want %q", name, got, c.foreign)
		}
	}
	cron := &cdiv1.DataImportCron{}
	if got := Account(cron); got != "default" {
		t.Errorf("the account of one that names none is %q", got)
	}
	cron.Spec.ServiceAccountName = new("importer")
	if got := Account(cron); got != "importer" {
		t.Errorf("the account is %q", got)
	}
}

func TestWhatMayNotBeClonedIsToldOf(t *testing.T) {
	s := &scope{cron: &cdiv1.DataImportCron{}, unauthorized: "Not authorized to create DataVolume: User x has insufficient permissions"}
	for what, got := range map[string]cdiv1.ConditionState{"UpToDate": upToDate(s), "Progressing": progressing(s)} {
		if got.Reason != "NotAuthorized" || got.Status != "False" {
			t.Errorf("%s is %+v", what, got)
		}
	}
}
