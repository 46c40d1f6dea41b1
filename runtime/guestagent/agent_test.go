package guestagent_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-vm/slipway/runtime/guestagent"
	"github.com/slipway-vm/slipway/runtime/protocol"
)

// agent answers as qemu-ga does; commands really run, on this machine.
type agent struct {
	answers map[string]string
	running map[int]map[string]any
	polls   int
	// slow is how many times a command is reported as still running, silent how many questions for one have no answer before.
	slow, silent int
}

// noAnswer is what a channel says of a question that has none.
type noAnswer struct{}

func (noAnswer) Error() string { return "no answer" }
func (noAnswer) Timeout() bool { return true }

func (a *agent) AgentCommand(ctx context.Context, request string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	var command struct {
		Execute   string `json:"execute"`
		Arguments struct {
			Path string   `json:"path"`
			Arg  []string `json:"arg"`
			PID  int      `json:"pid"`
		} `json:"arguments"`
	}
	if err := json.Unmarshal([]byte(request), &command); err != nil {
		return "", err
	}
	switch command.Execute {
	case "guest-exec":
		cmd := exec.Command(command.Arguments.Path, command.Arguments.Arg...)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
		a.running = map[int]map[string]any{7: {"exited": true, "exitcode": cmd.ProcessState.ExitCode(), "out-data": encode(stdout.String()), "err-data": encode(stderr.String())}}
		return `{"return":{"pid":7}}`, nil
	case "guest-exec-status":
		if a.silent > 0 {
			a.silent--
			time.Sleep(10 * time.Second)
			return "", noAnswer{}
		}
		if a.polls++; a.polls <= a.slow {
			return `{"return":{"exited":false}}`, nil
		}
		data, err := json.Marshal(map[string]any{"return": a.running[command.Arguments.PID]})
		return string(data), err
	}
	answer, ok := a.answers[command.Execute]
	if !ok {
		return fmt.Sprintf(`{"error":{"class":"CommandNotFound","desc":"The command %s has not been found"}}`, command.Execute), nil
	}
	return answer, nil
}

func TestAsk(t *testing.T) {
	a := &agent{answers: map[string]string{
		"guest-info":       `{"return":{"version":"10.0.2","supported_commands":[]}}`,
		"guest-get-osinfo": `{"return":{"id":"debian","name":"Debian GNU/Linux","pretty-name":"Debian 12","version":"12 (bookworm)","version-id":"12","machine":"x86_64","kernel-release":"6.1","kernel-version":"#1"}}`,
		"guest-network-get-interfaces": `{"return":[
			{"name":"lo","hardware-address":"00:00:00:00:00:00","ip-addresses":[{"ip-address":"127.0.0.1"}]},
			{"name":"eth0","hardware-address":"02:00:00:00:00:01","ip-addresses":[{"ip-address":"10.0.2.2","prefix":24},{"ip-address":"fe80::1"}]},
			{"name":"tun0"}]}`,
	}}
	report, err := guestagent.Ask(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	want := []protocol.GuestInterface{{Name: "eth0", MAC: "02:00:00:00:00:01", IPs: []string{"10.0.2.2"}}}
	if report.Version != "10.0.2" || report.OS.ID != "debian" || report.OS.KernelRelease != "6.1" || !reflect.DeepEqual(report.Interfaces, want) {
		t.Errorf("report %+v, OS %+v", report, report.OS)
	}
}

func TestAskKeepsWhatASmallAgentKnows(t *testing.T) {
	a := &agent{answers: map[string]string{"guest-info": `{"return":{"version":"1"}}`}}
	report, err := guestagent.Ask(t.Context(), a)
	if report.Version != "1" || !report.Whole || err == nil || !strings.Contains(err.Error(), "guest-get-osinfo has not been found") {
		t.Errorf("report %+v, error %v", report, err)
	}
}

// silent is an agent that does not answer a command.
type silent struct {
	agent
	command string
}

func (s *silent) AgentCommand(ctx context.Context, request string) (string, error) {
	if strings.Contains(request, s.command) {
		return "", noAnswer{}
	}
	return s.agent.AgentCommand(ctx, request)
}

func TestAReportWithAQuestionThatHasNoAnswerIsNotWhole(t *testing.T) {
	for _, command := range []string{"guest-info", "guest-get-osinfo", "guest-network-get-interfaces"} {
		a := &silent{agent{answers: map[string]string{"guest-info": `{"return":{"version":"1"}}`}}, command}
		if report, err := guestagent.Ask(t.Context(), a); report.Whole || err == nil {
			t.Errorf("without an answer to %s: %+v, %v", command, report, err)
		}
	}
}

func TestExec(t *testing.T) {
	cases := map[string]struct {
		run       protocol.GuestExec
		slow      int
		silent    int
		want      protocol.GuestExecResult
		wantError string
	}{
		"output and exit code are the command's": {
			run: protocol.GuestExec{Command: "/bin/sh", Args: []string{"-c", "echo out; echo err >&2; exit 3"}}, slow: 2,
			want: protocol.GuestExecResult{ExitCode: 3, Stdout: "out\n", Stderr: "err\n"},
		},
		"a long output is cut and says so": {
			run:  protocol.GuestExec{Command: "/bin/sh", Args: []string{"-c", "head -c 900000 /dev/zero | tr '\\0' x"}},
			want: protocol.GuestExecResult{Stdout: strings.Repeat("x", 768<<10), Truncated: true},
		},
		"a command that does not end in time": {
			run: protocol.GuestExec{Command: "/bin/true", TimeoutSeconds: 1}, slow: 1000, wantError: "at most 1s",
		},
		"a guest that stands still for a while": {
			run: protocol.GuestExec{Command: "/bin/echo", Args: []string{"out"}, TimeoutSeconds: 60}, slow: 1, silent: 2,
			want: protocol.GuestExecResult{Stdout: "out\n"},
		},
		"a guest that stands still for longer": {
			run: protocol.GuestExec{Command: "/bin/true", TimeoutSeconds: 25}, slow: 1, silent: 10, wantError: "at most 25s",
		},
		"no command": {wantError: "name one"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // where the time that the command itself takes does not count
				got, err := guestagent.Exec(t.Context(), &agent{slow: c.slow, silent: c.silent}, c.run)
				if c.wantError != "" {
					if err == nil || !strings.Contains(err.Error(), c.wantError) {
						t.Fatalf("error %v, want one with %q", err, c.wantError)
					}
					return
				}
				if err != nil || got != c.want {
					t.Fatalf("got %.80v, %v; want %.80v", got, err, c.want)
				}
			})
		})
	}
}
