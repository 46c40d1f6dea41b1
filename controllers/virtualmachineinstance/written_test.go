package virtualmachineinstance

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestWhatTheCacheLacksOfAWrite(t *testing.T) {
	begun := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		version, written string
		after            time.Duration
		forget, want     bool
	}{
		"nothing was written":            {version: "9"},
		"as it was before":               {version: "9", written: "10", want: true},
		"as it was written":              {version: "10", written: "10"},
		"as somebody wrote it later":     {version: "11", written: "10"},
		"an earlier state of the server": {version: "9", written: "10", after: lagBound},
		"no number":                      {version: "x", written: "10"},
		"another of its name":            {version: "9", written: "10", forget: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &written{}
			vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vmi", ResourceVersion: test.version}}
			if test.written != "" {
				w.note(vmi, test.written, begun)
			}
			if test.forget {
				w.forget(client.ObjectKeyFromObject(vmi))
			}
			if got := w.unseen(vmi, begun.Add(test.after)); got != test.want {
				t.Errorf("unseen: %t", got)
			}
			if !test.want && len(w.last) > 0 {
				t.Errorf("still remembered: %v", w.last)
			}
		})
	}
}
