package hypervisor

import (
	"fmt"
	"os"
	"path/filepath"
)

// ConfigureTPM tells the program that makes a new TPM, which libvirt calls at the first
// start with it, where the authority is whose certificates vouch for the TPM. authority
// is that folder; an empty one means one that ends with the pod.
func (h *Hypervisor) ConfigureTPM(authority string) error {
	if authority == "" {
		authority = filepath.Join(h.options.Dir, "data", "swtpm-localca")
	}
	if err := os.MkdirAll(authority, 0o770); err != nil {
		return fmt.Errorf("making the folder of the TPM's authority: %w", err)
	}
	config := filepath.Join(h.options.Dir, "config") // the daemon's XDG_CONFIG_HOME, which its children have too
	ca, options := filepath.Join(config, "swtpm-localca.conf"), filepath.Join(config, "swtpm-localca.options")
	for path, content := range map[string]string{
		filepath.Join(config, "swtpm_setup.conf"): "create_certs_tool = /usr/bin/swtpm_localca\ncreate_certs_tool_config = " + ca +
			"\ncreate_certs_tool_options = " + options + "\nactive_pcr_banks = sha256\n",
		ca: "statedir = " + authority + "\nsigningkey = " + filepath.Join(authority, "signkey.pem") +
			"\nissuercert = " + filepath.Join(authority, "issuercert.pem") + "\ncertserial = " + filepath.Join(authority, "certserial") + "\n",
		options: "--platform-manufacturer KubeVirt\n--platform-version 2.1\n--platform-model QEMU\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o660); err != nil {
			return fmt.Errorf("configuring the TPM: %w", err)
		}
	}
	return nil
}
