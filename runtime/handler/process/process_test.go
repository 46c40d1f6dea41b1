package process

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestAPodsCgroupIsKnownByEitherDriversName(t *testing.T) {
	const uid = types.UID("0f5f7a5e-1f4a-4a3e-9d57-3a4a5f2f6a10")
	for name, c := range map[string]struct {
		cgroups string
		want    bool
	}{
		"cgroup v1, cgroupfs driver": {
			"12:memory:/kubepods/burstable/pod0f5f7a5e-1f4a-4a3e-9d57-3a4a5f2f6a10/c0ffee\n11:pids:/kubepods/burstable/pod0f5f7a5e-1f4a-4a3e-9d57-3a4a5f2f6a10/c0ffee\n", true},
		"cgroup v1, named hierarchy": {
			"1:name=systemd:/kubepods/pod0f5f7a5e-1f4a-4a3e-9d57-3a4a5f2f6a10/c0ffee\n", true},
		"cgroup v2, systemd driver": {
			"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f5f7a5e_1f4a_4a3e_9d57_3a4a5f2f6a10.slice/cri-containerd-c0ffee.scope\n", true},
		"cgroup v2, guaranteed class": {
			"0::/kubepods.slice/kubepods-pod0f5f7a5e_1f4a_4a3e_9d57_3a4a5f2f6a10.slice/crio-c0ffee.scope\n", true},
		"cgroup v2, seen from another cgroup namespace": {
			"0::/../../pod0f5f7a5e-1f4a-4a3e-9d57-3a4a5f2f6a10/c0ffee\n", true},
		"another pod": {
			"0::/kubepods/burstable/pod11111111-1f4a-4a3e-9d57-3a4a5f2f6a10/c0ffee\n", false},
		"a name that only holds the uid": {
			"0::/user.slice/xpod0f5f7a5e-1f4a-4a3e-9d57-3a4a5f2f6a10x/c0ffee\n", false},
		"no pod at all": {"0::/init.scope\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inPod(c.cgroups, uid); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	if inPod("0::/pod/x\n", "") {
		t.Error("an empty uid names every pod")
	}
}

func TestResolverTakesTheLastSearchLine(t *testing.T) {
	got := parseResolver("# made by the kubelet\ndomain old.local\nsearch a.local b.local\nnameserver 10.96.0.10\nnameserver fd00::a\noptions ndots:5\n")
	want := Resolver{Nameservers: []string{"10.96.0.10", "fd00::a"}, Search: []string{"a.local", "b.local"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTheNodesOwnDeviceIsNotGivenAway(t *testing.T) {
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.GiveDevice("/dev/null", 107); err == nil || !strings.Contains(err.Error(), "node's device") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestNothingIsMadeInTheNodesOwnFolder(t *testing.T) {
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.GiveFolder("/dev/slipway-test", 107); err == nil || !strings.Contains(err.Error(), "node's device") {
		t.Errorf("got %v, want a refusal", err)
	}
}
