package hypervisor

import (
	"encoding/json"
	"fmt"
	"os"

	"libvirt.org/go/libvirt"
)

// monitor has QEMU execute a command of its own, which libvirt has no call for, with open files,
// and returns what the command answered.
func monitor(domain *libvirt.Domain, command string, arguments map[string]any, files ...*os.File) (json.RawMessage, error) {
	message := map[string]any{"execute": command}
	if len(arguments) > 0 {
		message["arguments"] = arguments
	}
	line, err := json.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("writing the command %s to QEMU: %w", command, err)
	}
	handed := make([]os.File, 0, len(files))
	for _, file := range files {
		handed = append(handed, *file)
	}
	said, _, err := domain.QemuMonitorCommandWithFiles(string(line), handed, 0)
	if err != nil {
		return nil, plain(err)
	}
	var answer struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Description string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(said), &answer); err != nil {
		return nil, fmt.Errorf("QEMU answered %q to %s: %w", said, command, err)
	}
	if answer.Error != nil {
		return nil, refusal(answer.Error.Description)
	}
	return answer.Return, nil
}

// refusal is QEMU's own answer that a command cannot be done.
type refusal string

func (r refusal) Error() string { return string(r) }
