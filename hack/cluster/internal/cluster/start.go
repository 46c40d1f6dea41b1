package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
	"github.com/slipway-vm/slipway/hack/cluster/internal/process"
)

// start starts the supervisor, and restarts components whose inputs changed.
// resumed tells that the node had to be started.
func (p *Program) start(ctx context.Context) (resumed bool, err error) {
	components, err := ReadComponents(p.Cluster)
	if err != nil {
		return false, err
	}
	changed, stopped := []string{}, 0
	for _, c := range components {
		_, alive := records().Get(c.Name)
		switch {
		case !alive:
			stopped++
		case p.startedWith(c.Name) != c.Inputs:
			changed = append(changed, c.Name)
		}
	}
	_, supervised := records().Get("supervisor")
	if supervised && stopped == 0 && len(changed) == 0 {
		return false, nil
	}
	if supervised {
		supervisor, _ := records().Get("supervisor")
		if err := supervisor.Stop(ctx, 5*time.Second); err != nil {
			return false, err
		}
	}
	for _, name := range changed {
		p.say("restarting %s: its program or configuration changed", name)
		if id, alive := records().Get(name); alive {
			if err := id.Stop(ctx, 20*time.Second); err != nil {
				return false, err
			}
		}
	}
	for _, c := range components {
		if err := os.WriteFile(p.inputsFile(c.Name), []byte(c.Inputs), 0o644); err != nil {
			return false, fmt.Errorf("recording the inputs of %s: %w", c.Name, err)
		}
	}
	return stopped > 0, p.startSupervisor()
}

func (p *Program) inputsFile(name string) string {
	return filepath.Join(p.Cluster.State, "conf", name+".inputs")
}

func (p *Program) startedWith(name string) string {
	b, _ := os.ReadFile(p.inputsFile(name)) // none: started never
	return string(b)
}

// startSupervisor starts a copy of this very program that keeps the components running.
func (p *Program) startSupervisor() error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("copying this program for the supervisor: %w", err)
	}
	program := p.Cluster.Bin("cluster")
	if err := os.WriteFile(program+".new", self, 0o755); err != nil {
		return fmt.Errorf("copying this program for the supervisor: %w", err)
	}
	if err := os.Rename(program+".new", program); err != nil {
		return fmt.Errorf("copying this program for the supervisor: %w", err)
	}
	cmd := exec.Command(program, "supervise", p.Cluster.Conf("components.json")) //nolint:noctx // it outlives this run
	cmd.Dir = "/"
	id, err := process.Start(cmd, p.Cluster.Log("supervisor"))
	if err != nil {
		return err
	}
	p.say("supervisor started as process %d; logs in %s", id.Pid, filepath.Dir(p.Cluster.Log("x")))
	return records().Put("supervisor", id)
}

// ReadComponents reads the supervisor's list.
func ReadComponents(c layout.Cluster) ([]process.Component, error) {
	return componentsFrom(c.Conf("components.json"))
}

func componentsFrom(file string) ([]process.Component, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the list of components: %w", err)
	}
	var components []process.Component
	if err := json.Unmarshal(b, &components); err != nil {
		return nil, fmt.Errorf("reading the list of components %s: %w", file, err)
	}
	return components, nil
}

// Supervise keeps the listed components running until it is told to end.
func Supervise(ctx context.Context, file string) error {
	components, err := componentsFrom(file)
	if err != nil {
		return err
	}
	process.Supervise(ctx, records(), components, func(format string, args ...any) {
		fmt.Printf("%s %s\n", time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
	})
	return nil
}
