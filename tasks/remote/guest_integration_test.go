//go:build integration

package remote_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guest is an SSH server that runs what it is told in a shell, as a guest's does.
type guest struct {
	port int
	// hostKey is its public key, clientKey the private key that may log in.
	hostKey, clientKey string

	mu  sync.Mutex
	ran []string
}

// commands are the lines that were run, in their order.
func (g *guest) commands() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.ran...)
}

func newKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

func startGuest(t *testing.T) *guest {
	t.Helper()
	host, _ := newKey(t)
	user, private := newKey(t)
	g := &guest{hostKey: string(ssh.MarshalAuthorizedKey(host.PublicKey())), clientKey: private}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(user.PublicKey().Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	g.port = listener.Addr().(*net.TCPAddr).Port
	go func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			go g.serve(t.Context(), socket, config)
		}
	}()
	return g
}

func (g *guest) serve(ctx context.Context, socket net.Conn, config *ssh.ServerConfig) {
	conn, channels, requests, err := ssh.NewServerConn(socket, config)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() { _ = conn.Wait(); cancel() }()
	go ssh.DiscardRequests(requests)
	for made := range channels {
		channel, requests, err := made.Accept()
		if err != nil {
			return
		}
		go func() {
			for request := range requests {
				if request.Type == "exec" {
					_ = request.Reply(true, nil)
					line := string(request.Payload[4:])
					go g.run(ctx, channel, line)
				}
			}
		}()
	}
}

func (g *guest) run(ctx context.Context, channel ssh.Channel, line string) {
	g.mu.Lock()
	g.ran = append(g.ran, line)
	g.mu.Unlock()
	command := exec.CommandContext(ctx, "sh", "-c", line)
	command.Stdout, command.Stderr = channel, channel.Stderr()
	_ = command.Run()
	status := make([]byte, 4)
	binary.BigEndian.PutUint32(status, uint32(command.ProcessState.ExitCode()))
	_, _ = channel.SendRequest("exit-status", false, status)
	_ = channel.Close()
}

// operate plays the controllers for the VMs of a namespace: it makes and deletes their instances,
// with the address of the guest, and lets a deleted VM go.
func operate(t *testing.T, c client.WithWatch, namespace string, stuck func(vm *virtv1.VirtualMachine) bool) {
	t.Helper()
	vms, err := c.Watch(t.Context(), &virtv1.VirtualMachineList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(vms.Stop)
	go func() {
		for event := range vms.ResultChan() {
			vm, ok := event.Object.(*virtv1.VirtualMachine)
			if !ok || event.Type == watch.Deleted || stuck != nil && stuck(vm) {
				continue
			}
			if err := settle(t.Context(), c, vm); err != nil && t.Context().Err() == nil {
				t.Errorf("playing the controller of VirtualMachine %s: %v", vm.Name, err)
			}
		}
	}()
}

// settle brings the instance of a VM to what the VM asks for.
func settle(ctx context.Context, c client.Client, vm *virtv1.VirtualMachine) error {
	meta := metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return err
	}
	if vm.DeletionTimestamp != nil || strategy == virtv1.RunStrategyHalted {
		if err := c.Delete(ctx, &virtv1.VirtualMachineInstance{ObjectMeta: meta}); client.IgnoreNotFound(err) != nil {
			return err
		}
		if vm.DeletionTimestamp == nil {
			return nil
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		return client.IgnoreNotFound(c.Patch(ctx, vm, patch))
	}
	if strategy != virtv1.RunStrategyAlways {
		return nil
	}
	vmi := &virtv1.VirtualMachineInstance{
		ObjectMeta: meta,
		Spec:       *vm.Spec.Template.Spec.DeepCopy(),
		Status: virtv1.VirtualMachineInstanceStatus{
			Phase:      virtv1.Running,
			Interfaces: []virtv1.VirtualMachineInstanceNetworkInterface{{Name: vm.Spec.Template.Spec.Networks[0].Name, IP: "127.0.0.1"}},
		},
	}
	err = c.Create(ctx, vmi)
	if err != nil && strings.Contains(err.Error(), "already exists") {
		return nil
	}
	return err
}

func marshal(signer ssh.Signer) []byte { return ssh.MarshalAuthorizedKey(signer.PublicKey()) }
