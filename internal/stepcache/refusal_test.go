package stepcache

import "testing"

func TestWhatProvisionersSay(t *testing.T) {
	for message, want := range map[string]bool{
		`failed to provision volume with StorageClass "x": CSI driver does not support clone operation: controller CLONE_VOLUME capability is not reported`: true,
		`plugin "kubernetes.io/host-path" is not a CSI plugin. Only CSI plugin can provision a claim with a datasource`:                                     true,
		`failed to provision volume with StorageClass "x": rpc error: code = InvalidArgument desc = cloning is not supported`:                               true,
		`failed to provision volume with StorageClass "x": rpc error: code = ResourceExhausted desc = not enough space`:                                     false,
		`failed to provision volume with StorageClass "x": rpc error: code = DeadlineExceeded desc = context deadline exceeded`:                             false,
		`error getting handle for DataSource Type PersistentVolumeClaim by Name a: the PVC is not bound yet`:                                                false,
	} {
		if got := refuses(message); got != want {
			t.Errorf("%q: %t, want %t", message, got, want)
		}
	}
}
