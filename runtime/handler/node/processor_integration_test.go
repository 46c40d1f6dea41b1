//go:build integration

package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-vm/slipway/internal/await"
	"github.com/slipway-vm/slipway/internal/scheme"
	"github.com/slipway-vm/slipway/runtime/processor"
	"github.com/slipway-vm/slipway/tests/fixture/apiserver"
)

// patience bounds each wait, which ends by an event.
const patience = 2 * time.Minute

// TestTheNodeIsLabelledByItsProcessor follows a Node through changes of the KubeVirt object and of the node itself.
func TestTheNodeIsLabelledByItsProcessor(t *testing.T) {
	config := apiserver.Start(t, apiserver.Only(t, "../../../controllers/hyperconverged/components/crds", "kubevirt.io_kubevirts")...)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	kubevirt := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubevirt"}}
	const mine = v1.CPUModelLabel + "MyOwn"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{mine: "true"}}}
	for _, object := range []client.Object{kubevirt, node} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	start := func(described bool) func() {
		ctx, cancel := context.WithCancel(t.Context())
		known, err := cache.New(config, cache.Options{Scheme: scheme.New()})
		if err != nil {
			t.Fatal(err)
		}
		description := t.TempDir()
		for _, name := range []string{processor.DomainFile, processor.FeaturesFile, processor.HostFile} {
			content, err := os.ReadFile(filepath.Join("../../processor/testdata/kvm", name))
			if err != nil {
				t.Fatal(err)
			}
			if !described {
				continue
			}
			if err := os.WriteFile(filepath.Join(description, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		beats := &Heartbeat{
			Client: c, Reader: c, Cache: known, NodeName: "n", KubeletRoot: t.TempDir(), Description: description, Certificate: []byte("c"),
		}
		ended := make(chan error, 2)
		go func() { ended <- known.Start(ctx) }()
		if !known.WaitForCacheSync(ctx) {
			t.Fatal("the cache is not filled")
		}
		go func() { ended <- beats.Start(ctx) }()
		return func() {
			cancel()
			for range 2 {
				if err := <-ended; err != nil {
					t.Errorf("the heart stood still: %v", err)
				}
			}
		}
	}
	wait := func(what string, labels map[string]bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := await.Object(ctx, c, &corev1.NodeList{}, client.ObjectKeyFromObject(node), func(n *corev1.Node, _ bool) (bool, error) {
			for label, has := range labels {
				if (n.Labels[label] == "true") != has {
					return false, nil
				}
			}
			return true, nil
		})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	edit := func(object client.Object, change string) {
		t.Helper()
		if err := c.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(change))); err != nil {
			t.Fatal(err)
		}
	}
	const server, penryn, conroe = v1.CPUModelLabel + "Skylake-Server-IBRS", v1.CPUModelLabel + "Penryn", v1.CPUModelLabel + "Conroe"
	stop := start(true)
	wait("the first beat", map[string]bool{
		server: true, penryn: true, conroe: false, mine: true, v1.CPUFeatureLabel + "aes": true, v1.CPUModelVendorLabel + "Intel": true,
		v1.HostModelCPULabel + "Skylake-Server-IBRS": true, v1.NodeSchedulable: true,
	})
	edit(kubevirt, `{"spec":{"configuration":{"obsoleteCPUModels":{"Skylake-Server-IBRS":true}}}}`)
	wait("a model that became obsolete", map[string]bool{
		server: false, penryn: true, conroe: true, mine: true, v1.NodeHostModelIsObsoleteLabel: true,
	})
	edit(node, `{"metadata":{"annotations":{"`+v1.LabellerSkipNodeAnnotation+`":"true"}}}`)
	edit(kubevirt, `{"spec":{"configuration":{"obsoleteCPUModels":null}}}`)
	wait("a node that is taken out", map[string]bool{
		server: false, penryn: false, mine: true, v1.CPUFeatureLabel + "aes": false, v1.NodeHostModelIsObsoleteLabel: false, v1.NodeSchedulable: true,
	})
	edit(node, `{"metadata":{"annotations":{"`+v1.LabellerSkipNodeAnnotation+`":null}}}`)
	edit(kubevirt, `{"spec":{"configuration":{"obsoleteCPUModels":{"486":true}}}}`)
	wait("a node that is back", map[string]bool{server: true, penryn: true, conroe: true, mine: true})
	stop()
	stop = start(false) // as a handler that was started anew, and has learnt nothing
	wait("a processor of which nothing is known", map[string]bool{server: false, penryn: false, mine: true, v1.NodeSchedulable: true})
	stop()
}
