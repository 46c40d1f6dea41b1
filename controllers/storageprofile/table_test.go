package storageprofile

import (
	"fmt"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// rows returns the table that is shipped.
func rows(t *testing.T) []knowledge {
	t.Helper()
	all, err := table()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestEveryRowIsReachedByItsProvisioners(t *testing.T) {
	all := rows(t)
	if len(all) < 50 {
		t.Fatalf("there are %d rows only", len(all))
	}
	for _, row := range all {
		for _, provisioner := range row.Provisioners {
			catch := known(all, &storagev1.StorageClass{Provisioner: provisioner})
			if len(row.Parameters) == 0 && (catch == nil || strings.Join(catch.Sets, ",") != strings.Join(row.Sets, ",")) {
				t.Errorf("a class of %s without parameters gets %+v, want %v", provisioner, catch, row.Sets)
			}
		}
	}
}

func TestKnownLooksAtParameters(t *testing.T) {
	for name, c := range map[string]struct {
		provisioner string
		parameters  map[string]string
		want        string // the first set; empty when nothing is known
	}{
		"of Slipway's own":             {"kubevirt.io.hostpath-provisioner", nil, "ReadWriteOnce Filesystem"},
		"of k3s":                       {"rancher.io/local-path", nil, "ReadWriteOnce Filesystem"},
		"of nobody":                    {"example.com/fast", nil, ""},
		"Longhorn":                     {"driver.longhorn.io", map[string]string{"fsType": ""}, "ReadWriteOnce Block"},
		"Longhorn that migrates":       {"driver.longhorn.io", map[string]string{"migratable": "true", "fsType": "ext4"}, "ReadWriteMany Block"},
		"Longhorn over NFS":            {"driver.longhorn.io", map[string]string{"nfsOptions": "vers=4.2"}, "ReadWriteMany Filesystem"},
		"Trident that says nothing":    {"csi.trident.netapp.io", nil, ""},
		"Trident over NAS":             {"csi.trident.netapp.io", map[string]string{"backendType": "ontap-nas-economy"}, "ReadWriteMany Filesystem"},
		"Trident over SAN":             {"csi.trident.netapp.io", map[string]string{"backendType": "ontap-san"}, "ReadWriteMany Block"},
		"Trident in a cloud":           {"csi.trident.netapp.io", map[string]string{"backendType": "google-cloud-netapp-volumes", "selector": "zone=a; performance=flex"}, "ReadWriteMany Filesystem"},
		"Trident in another cloud":     {"csi.trident.netapp.io", map[string]string{"backendType": "google-cloud-netapp-volumes", "selector": "performance=flexible"}, ""},
		"disks of a cloud for many":    {"ebs.csi.aws.com", map[string]string{"type": "io2"}, "ReadWriteMany Block"},
		"disks of a cloud":             {"ebs.csi.aws.com", map[string]string{"type": "st1"}, "ReadWriteOnce Block"},
		"vSphere":                      {"csi.vsphere.vmware.com", map[string]string{"csi.storage.k8s.io/fstype": "ext4"}, "ReadWriteOnce Block"},
		"vSphere over NFS":             {"csi.vsphere.vmware.com", map[string]string{"csi.storage.k8s.io/fstype": "NFS4"}, "ReadWriteMany Filesystem"},
		"Portworx":                     {"pxd.portworx.com", map[string]string{"sharedv4_mount_options": "vers=3.0"}, "ReadWriteMany Block"},
		"Portworx over NFS":            {"pxd.portworx.com", map[string]string{"sharedv4_mount_options": "nolock,hard,vers=3.0"}, "ReadWriteMany Filesystem"},
		"Portworx over NFS, in order":  {"pxd.portworx.com", map[string]string{"sharedv4_mount_options": "vers=3.0,nolock"}, "ReadWriteMany Filesystem"},
		"Infinidat of no known manner": {"infinibox-csi-driver", map[string]string{"storage_protocol": "smb"}, ""},
	} {
		got := ""
		if row := known(rows(t), &storagev1.StorageClass{Provisioner: c.provisioner, Parameters: c.parameters}); row != nil {
			got = row.Sets[0]
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestParseRefusesWhatMakesNoSense(t *testing.T) {
	for text, want := range map[string]string{
		"- sets: [ReadWriteOnce Block]":                                              "names no provisioner",
		"- provisioners: [a]\n  sets: [Block]":                                       "no access mode and volume mode",
		"- provisioners: [a]\n  sets: [ReadWriteOnce Block]\n  colour: red":          "colour",
		"- provisioners: [a]\n  sets: [ReadWriteOnce Block]\n  parameters: {a: (}":   "parameter a",
		"- provisioners: [a]\n  sets: [ReadWriteOnce Block]\n  cloneStrategy: fast":  "clone strategy",
		"- provisioners: [a]\n  sets: [ReadWriteOnce Block]\n  minimumSize: a bit":   "minimum size",
		"- provisioners: [a]\n  sets: [ReadWriteOnce Block]\n  minimumSize: a bit\n": "row 1 of a",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngave %v, want an error with %q", text, err, want)
		}
	}
}

func TestStatus(t *testing.T) {
	snapshots := []snapshotv1.VolumeSnapshotClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Driver: "rbd.csi.ceph.com"},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{annotationDefaultSnapshot: "true"}}, Driver: "rbd.csi.ceph.com"},
		{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Driver: "other"},
	}
	own := []cdiv1.ClaimPropertySet{{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeMode: new(corev1.PersistentVolumeFilesystem)}}
	for name, c := range map[string]struct {
		class     storagev1.StorageClass
		spec      cdiv1.StorageProfileSpec
		snapshots []snapshotv1.VolumeSnapshotClass
		volumes   []corev1.PersistentVolume
		want      string // sets, clone strategy, snapshot class, Recognized
	}{
		"of node storage":        {class: storagev1.StorageClass{Provisioner: "kubevirt.io.hostpath-provisioner"}, want: "ReadWriteOnce Filesystem,ReadWriteOnce Block csi-clone - True"},
		"with snapshots":         {class: storagev1.StorageClass{Provisioner: "rbd.csi.ceph.com"}, snapshots: snapshots, want: "ReadWriteMany Block,ReadWriteOnce Block,ReadWriteOnce Filesystem snapshot b True"},
		"with a snapshot class":  {class: storagev1.StorageClass{Provisioner: "rbd.csi.ceph.com"}, spec: cdiv1.StorageProfileSpec{SnapshotClass: new("a")}, snapshots: snapshots, want: "ReadWriteMany Block,ReadWriteOnce Block,ReadWriteOnce Filesystem snapshot a True"},
		"with another's class":   {class: storagev1.StorageClass{Provisioner: "rbd.csi.ceph.com"}, spec: cdiv1.StorageProfileSpec{SnapshotClass: new("c")}, snapshots: snapshots, want: "ReadWriteMany Block,ReadWriteOnce Block,ReadWriteOnce Filesystem copy - True"},
		"with a missing class":   {class: storagev1.StorageClass{Provisioner: "rbd.csi.ceph.com"}, spec: cdiv1.StorageProfileSpec{SnapshotClass: new("d"), CloneStrategy: new(cdiv1.CloneStrategySnapshot)}, snapshots: snapshots, want: "ReadWriteMany Block,ReadWriteOnce Block,ReadWriteOnce Filesystem snapshot - True"},
		"without snapshots":      {class: storagev1.StorageClass{Provisioner: "rbd.csi.ceph.com"}, want: "ReadWriteMany Block,ReadWriteOnce Block,ReadWriteOnce Filesystem copy - True"},
		"of nobody":              {class: storagev1.StorageClass{Provisioner: "example.com"}, want: " copy - False"},
		"of nobody, set by hand": {class: storagev1.StorageClass{Provisioner: "example.com"}, spec: cdiv1.StorageProfileSpec{ClaimPropertySets: own, CloneStrategy: new(cdiv1.CloneStrategyCsiClone)}, want: "ReadWriteMany Filesystem csi-clone - False"},
		"by the class":           {class: storagev1.StorageClass{Provisioner: "example.com", ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationCloneStrategy: "csi-clone"}}}, want: " csi-clone - False"},
		"of volumes by hand": {class: storagev1.StorageClass{Provisioner: noProvisioner}, want: "ReadWriteMany Filesystem,ReadWriteOnce Block,ReadWriteOnce Filesystem copy - True", volumes: []corev1.PersistentVolume{
			{Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany}}},
			{Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: new(corev1.PersistentVolumeBlock)}},
			{Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}},
		}},
		"of no volume by hand": {class: storagev1.StorageClass{Provisioner: noProvisioner}, want: " copy - False"},
	} {
		t.Run(name, func(t *testing.T) {
			status := newStatus(facts{class: &c.class, spec: c.spec, known: known(rows(t), &c.class), snapshots: c.snapshots, volumes: c.volumes})
			var sets []string
			for _, set := range status.ClaimPropertySets {
				sets = append(sets, fmt.Sprintf("%s %s", set.AccessModes[0], *set.VolumeMode))
			}
			snapshot := "-"
			if status.SnapshotClass != nil {
				snapshot = *status.SnapshotClass
			}
			got := fmt.Sprintf("%s %s %s %s", strings.Join(sets, ","), *status.CloneStrategy, snapshot, status.Conditions[0].Status)
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestSourceFormat(t *testing.T) {
	const rook = "rook-ceph.rbd.csi.ceph.com"
	snapshots := []snapshotv1.VolumeSnapshotClass{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Driver: rook}}
	for name, c := range map[string]struct {
		provisioner string
		parameters  map[string]string
		spec        *cdiv1.DataImportCronSourceFormat
		snapshots   []snapshotv1.VolumeSnapshotClass
		want        cdiv1.DataImportCronSourceFormat
	}{
		"of node storage":                   {provisioner: "kubevirt.io.hostpath-provisioner", want: "pvc"},
		"of nobody":                         {provisioner: "example.com/fast", want: "pvc"},
		"of nobody, set by hand":            {provisioner: "example.com/fast", spec: new(cdiv1.DataImportCronSourceFormatSnapshot), want: "snapshot"},
		"known to do better with snapshots": {provisioner: rook, snapshots: snapshots, want: "snapshot"},
		"without a snapshot class":          {provisioner: rook, want: "pvc"},
		"known, set by hand":                {provisioner: rook, snapshots: snapshots, spec: new(cdiv1.DataImportCronSourceFormatPvc), want: "pvc"},
		"Trident over SAN, without classes": {provisioner: "csi.trident.netapp.io", parameters: map[string]string{"backendType": "ontap-san"}, snapshots: snapshots, want: "pvc"},
	} {
		class := &storagev1.StorageClass{Provisioner: c.provisioner, Parameters: c.parameters}
		status := newStatus(facts{class: class, spec: cdiv1.StorageProfileSpec{DataImportCronSourceFormat: c.spec}, known: known(rows(t), class), snapshots: c.snapshots})
		if got := *status.DataImportCronSourceFormat; got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestNoSnapshotClass(t *testing.T) {
	profile := &cdiv1.StorageProfile{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Status: cdiv1.StorageProfileStatus{Provisioner: new("example.com")}}
	if got := NoSnapshotClass(profile); !strings.Contains(got, "VolumeSnapshotClass of driver example.com; create one") {
		t.Errorf("got %q", got)
	}
	profile.Spec.SnapshotClass = new("typo")
	if got := NoSnapshotClass(profile); !strings.Contains(got, "VolumeSnapshotClass typo of driver example.com") || !strings.Contains(got, "StorageProfile fast") {
		t.Errorf("got %q", got)
	}
}
