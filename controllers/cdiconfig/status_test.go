package cdiconfig

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/names"
)

func classes() []storagev1.StorageClass {
	return []storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{names.AnnotationDefaultClass: "true"}}, Provisioner: "example.com"},
		{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Provisioner: names.HostPathDriver},
		{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: "example.com"},
	}
}

func TestStatusOfNothingSet(t *testing.T) {
	status := Status(&cdiv1.CDIConfigSpec{}, classes())
	overhead := status.FilesystemOverhead
	if overhead.Global != "0.06" || overhead.StorageClass["fast"] != "0.06" || overhead.StorageClass["node"] != "0" {
		t.Errorf("overheads are %+v", overhead)
	}
	if status.ScratchSpaceStorageClass != "fast" || status.UploadProxyURL != nil || status.Preallocation {
		t.Errorf("the status is %+v", status)
	}
	if memory := status.DefaultPodResourceRequirements.Limits[corev1.ResourceMemory]; memory.String() != "128Mi" {
		t.Errorf("importers may have %s", memory.String())
	}
}

func TestStatusOfWhatIsSet(t *testing.T) {
	status := Status(&cdiv1.CDIConfigSpec{
		UploadProxyURLOverride: new("uploads.example.com"), ScratchSpaceStorageClass: new("slow"), Preallocation: new(true),
		PodResourceRequirements: &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
		FilesystemOverhead:      &cdiv1.FilesystemOverhead{Global: "0.1", StorageClass: map[string]cdiv1.Percent{"slow": "0.2", "node": "0.05", "gone": "0.3"}},
	}, classes())
	want := map[string]cdiv1.Percent{"fast": "0.1", "slow": "0.2", "node": "0.05"}
	for class, overhead := range want {
		if status.FilesystemOverhead.StorageClass[class] != overhead {
			t.Errorf("the overhead of %s is %s, want %s", class, status.FilesystemOverhead.StorageClass[class], overhead)
		}
	}
	if len(status.FilesystemOverhead.StorageClass) != len(want) || *status.UploadProxyURL != "uploads.example.com" || status.ScratchSpaceStorageClass != "slow" || !status.Preallocation {
		t.Errorf("the status is %+v", status)
	}
	limits := status.DefaultPodResourceRequirements.Limits
	if limits.Cpu().String() != "2" || limits.Memory().String() != "128Mi" {
		t.Errorf("importers may have %v", limits)
	}
}

func TestOverheadOfClasses(t *testing.T) {
	all := classes()
	status := Status(&cdiv1.CDIConfigSpec{FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.1"}}, all[:1])
	for want, class := range map[float64]*storagev1.StorageClass{0.1: nil, 0: &all[1]} {
		if got := Overhead(&status, class); got != want {
			t.Errorf("the overhead of %v is %v, want %v", class, got, want)
		}
	}
	if got := Overhead(&cdiv1.CDIConfigStatus{}, &all[0]); got != 0.06 {
		t.Errorf("without a CDIConfig it is %v", got)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for want, spec := range map[string]*cdiv1.CDIConfigSpec{
		"":                                 nil,
		"config.filesystemOverhead.global": {FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "1"}},
		"config.filesystemOverhead.storageClass[a]": {FilesystemOverhead: &cdiv1.FilesystemOverhead{StorageClass: map[string]cdiv1.Percent{"a": "much"}}},
		"config.uploadProxyURLOverride":             {UploadProxyURLOverride: new("http://uploads.example.com/path")},
		"config.insecureRegistries[1]":              {InsecureRegistries: []string{"registry.local:5000", "http://registry.local"}},
		"config.podResourceRequirements.limits[cpu]": {PodResourceRequirements: &corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")},
		}},
		"config.logVerbosity":                   {LogVerbosity: new(int32(10))},
		"config.podResourceRequirements.claims": {PodResourceRequirements: &corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "a"}}}},
	} {
		errs := Validate(spec, field.NewPath("config"))
		if want == "" && len(errs) == 0 {
			continue
		}
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Field, want) || want == "" {
			t.Errorf("got %v, want one error of %q", errs, want)
		}
	}
	good := &cdiv1.CDIConfigSpec{UploadProxyURLOverride: new("https://uploads.example.com:8443"), FilesystemOverhead: &cdiv1.FilesystemOverhead{Global: "0.999"}, LogVerbosity: new(int32(0))}
	if errs := Validate(good, field.NewPath("config")); len(errs) > 0 {
		t.Error(errs)
	}
}
