package hostpath

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-vm/slipway/runtime/hostpath/driver"
)

func TestAVolumeIsWhereTheKubeletHasIt(t *testing.T) {
	const volumes = "/var/lib/kubelet/pods/uid-1/volumes/"
	for name, tc := range map[string]struct {
		source corev1.PersistentVolumeSource
		want   driver.Place
	}{
		"of a CSI driver":             {corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{}}, driver.Place{Path: volumes + "kubernetes.io~csi/pv-1/mount", Mount: true}},
		"of a kind that is CSI's now": {corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}}, driver.Place{Path: volumes + "kubernetes.io~csi/pv-1/mount", Mount: true}},
		"of a local disk":             {corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/disk"}}, driver.Place{Path: volumes + "kubernetes.io~local-volume/pv-1", Mount: true}},
		"of iSCSI":                    {corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{}}, driver.Place{Path: volumes + "kubernetes.io~iscsi/pv-1", Mount: true}},
		"of NFS":                      {corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}, driver.Place{Path: volumes + "kubernetes.io~nfs/pv-1", Mount: true}},
		"a directory":                 {corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/disk/"}}, driver.Place{Path: "/srv/disk"}},
	} {
		volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: tc.source}}
		volume.Name = "pv-1"
		if got := mountOf("/var/lib/kubelet", "uid-1", volume); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
